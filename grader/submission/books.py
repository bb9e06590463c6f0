"""All that a batch writes for people, made from its database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from grader import tasks
from grader.submission.choose import Choice
from grader.submission.course import Course
from grader.submission.gradebook import write_gradebook, write_unread
from grader.submission.grades import StudentGrade, grade_all
from grader.submission.kit import KIT
from grader.submission.pages import (
    remove_others,
    write_leaderboard,
    write_overview,
    write_student,
    write_suspicions,
)
from grader.submission.store import Store
from grader.submission.suspicions import suspicions


class Books:
    """Gradebook and pages of a batch, in its folder. choice: which links count, as of now."""

    def __init__(
        self,
        store: Store,
        out: Path,
        course: Course,
        choice: Choice,
        selected: Sequence[tasks.Task],
        language: str = "en",
    ) -> None:
        self._store = store
        self._out = out
        self._course = course
        self.choice = choice
        self._selected = selected
        self._language = language
        self._next = 0.0

    def grades(self) -> list[StudentGrade]:
        """Everybody, in the order of the sheet."""
        rows = sorted(self._store.rows(), key=lambda row: (row.line, row.id))
        return grade_all(rows, self.choice, self._course, self._selected)

    def update(self, student: str) -> None:
        """Gradebook and the student's page, for no more than a twentieth of the time."""
        begin = time.monotonic()
        if begin < self._next:
            return
        grades = self.grades()
        write_gradebook(self._out / "gradebook.csv", grades, self._selected, self._language)
        for grade in grades:
            if grade.student == student:
                write_student(self._out, grade, self._language)
        end = time.monotonic()
        self._next = end + 20 * (end - begin)

    def write(self, title: str) -> list[StudentGrade]:
        """Everything."""
        language, grades = self._language, self.grades()
        unread = self.choice.unread
        write_gradebook(self._out / "gradebook.csv", grades, self._selected, language)
        write_unread(self._out / "unread.csv", unread, language)
        for grade in grades:
            write_student(self._out, grade, language)
        remove_others(self._out, grades)
        title = self._course.name or title
        write_overview(self._out, title, grades, unread, self._selected, language)
        write_leaderboard(self._out, grades, language)
        found = suspicions(self._store, self._store.rows(), KIT)
        write_suspicions(self._out, found, language)
        return grades
