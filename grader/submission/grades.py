"""From what was graded to a grade: weights, lateness, one line for each student."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

from grader import tasks
from grader.submission.choose import Choice
from grader.submission.course import Course
from grader.submission.store import MISSING, NOT_FETCHED, Row

Status = Literal[
    "graded", "late", "stopped", "not graded", "not fetched", "dead link", "bad link", "nothing",
    "waiting",
]  # fmt: skip
#: The worse ones come first: a student with several submissions has the worst of theirs.
_WORST: Final[tuple[Status, ...]] = (
    "waiting", "not fetched", "not graded", "dead link", "stopped", "late", "graded", "nothing",
)  # fmt: skip
_STATUS: Final[Mapping[str, Status]] = {
    "": "waiting",
    "graded": "graded",
    "timeout": "stopped",
    "error": "not graded",
    MISSING: "dead link",
    NOT_FETCHED: "not fetched",
}


TRIED_AGAIN: Final = "nothing is known of this link: the next run of the batch tries it again"


@dataclass
class AssignmentGrade:
    """points of max_points (what could be earned here); factor: what lateness leaves of them."""

    points: float
    max_points: float
    factor: float
    late: timedelta

    @property
    def share(self) -> float:
        """Of the assignment, in [0, 1]."""
        return self.factor * self.points / self.max_points if self.max_points else 0.0


@dataclass
class StudentGrade:
    """What a student gets. grade: 0 to 100, weighted. by task: points, status; by assignment."""

    student: str
    name: str
    status: Status
    grade: float = 0.0
    points: float = 0.0
    max_points: float = 0.0
    assignments: dict[str, AssignmentGrade] = field(default_factory=dict)
    task_points: dict[str, float] = field(default_factory=dict)
    task_statuses: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def grade_all(
    rows: Sequence[Row], choice: Choice, course: Course, selected: Sequence[tasks.Task]
) -> list[StudentGrade]:
    """Everybody of the sheet, in its order; also those of whom nothing could be read."""
    graded = []
    for student, name in choice.names.items():
        own = [row for row in rows if row.student == student]
        if own:
            graded.append(_student(own, name, course, selected))
        elif student in choice.without:
            unread = choice.without[student]
            note = f"line {unread.entry.line}: {unread.reason}"
            graded.append(StudentGrade(student, name, "bad link", notes=[note]))
        else:
            graded.append(
                StudentGrade(student, name, "nothing", notes=["no link for what is graded here"])
            )
        graded[-1].notes += choice.alike.get(student, [])
    return graded


def _student(
    rows: Sequence[Row], name: str, course: Course, selected: Sequence[tasks.Task]
) -> StudentGrade:
    found = StudentGrade(rows[0].student, name, "nothing", rows=list(rows))
    statuses: set[Status] = set()
    for row in rows:
        status = _STATUS[row.status if row.state in ("graded", "done", "dead") else ""]
        if status == "graded" and any(course.late.factor(late) < 1 for late in row.late.values()):
            status = "late"
        statuses.add(status)
        notes = [note for note in [row.note, *row.warnings, *row.remarks] if note]
        if status == "not fetched":
            notes.insert(1, TRIED_AGAIN)
        found.notes += [f"line {row.line}: {n}" for n in notes] if len(rows) > 1 else notes
        for key, late in row.late.items():
            _assignment(found, row, key, late, course)
    found.status = min(statuses, key=_WORST.index)
    keys = dict.fromkeys(task.id.partition(".")[0] for task in selected)
    weights = {key: course.weights.get(key, 1.0) for key in keys}
    total = sum(weights.values())
    shares = {key: each.share for key, each in found.assignments.items()}
    if total > 0:
        weighted = sum(weights[key] * shares.get(key, 0.0) for key in keys)
        found.grade = round(100.0 * weighted / total, 2)
    found.points = round(sum(each.points for each in found.assignments.values()), 6)
    found.max_points = round(sum(each.max_points for each in found.assignments.values()), 6)
    return found


def _assignment(found: StudentGrade, row: Row, key: str, late: timedelta, course: Course) -> None:
    factor = course.late.factor(late)
    listed = [task for task in tasks_of(row) if task["task"].partition(".")[0] == key]
    if factor == 0.0:
        found.notes.append(f"{key}: {words(late)} late, which is too late to count")
    found.assignments[key] = AssignmentGrade(
        round(sum(task["points"] for task in listed), 6),
        round(sum(task["max_points"] for task in listed), 6),
        factor,
        late,
    )
    for task in listed:
        found.task_points[task["task"]] = task["points"]
        found.task_statuses[task["task"]] = task["status"]


def tasks_of(row: Row) -> list[dict[str, Any]]:
    """What the examiner wrote of each task."""
    listed: list[dict[str, Any]] = [] if row.document is None else row.document["tasks"]
    return listed


def words(late: timedelta) -> str:
    """ "2 days 3 h", "4 h 10 min", "12 min"."""
    minutes = max(1, round(late.total_seconds() / 60)) if late else 0
    days, minutes = divmod(minutes, 24 * 60)
    hours, minutes = divmod(minutes, 60)
    if days and hours:
        return f"1 day {hours} h" if days == 1 else f"{days} days {hours} h"
    if days:
        return "1 day" if days == 1 else f"{days} days"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
