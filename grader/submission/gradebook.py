"""`gradebook.csv`: a line for each student, as spreadsheets open it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grader import tasks
from grader.report.language import text, translated
from grader.submission.choose import Unread
from grader.submission.grades import StudentGrade, words
from grader.submission.spreadsheets import fixed, write_csv


def write_gradebook(
    path: Path,
    grades: Sequence[StudentGrade],
    selected: Sequence[tasks.Task],
    language: str = "en",
) -> None:
    """Student, status, grade, points by assignment and task, commit, lateness, notes; at once.

    language: of heads, statuses and notes; the columns stand in one order in all.
    """
    ids = [task.id for task in selected]
    keys = list(dict.fromkeys(each.partition(".")[0] for each in ids))
    head = ["student", "name", "status", "grade", "points", "max_points"]
    head += [*keys, *(f"{key} late" for key in keys), "commit", "link", "submitted"]
    head += [*ids, *(f"{each} status" for each in ids), "note"]
    lines = []
    for grade in grades:
        points = grade.assignments
        line = [grade.student, grade.name, fixed(language, grade.status)]
        line += [f"{grade.grade:g}", f"{grade.points:g}", f"{grade.max_points:g}"]
        line += [f"{points[key].points:g}" if key in points else "" for key in keys]
        line += [
            translated(language, words(points[key].late))
            if key in points and points[key].factor < 1
            else ""
            for key in keys
        ]
        line.append(" ".join(row.sha for row in grade.rows if row.sha))
        line.append(" ".join(row.pasted for row in grade.rows))
        times = [row.submitted.isoformat(" ") for row in grade.rows if row.submitted]
        line.append("; ".join(times))
        line += [f"{grade.task_points[i]:g}" if i in grade.task_points else "" for i in ids]
        line += [fixed(language, grade.task_statuses.get(each, "")) for each in ids]
        notes = (translated(language, note) for note in grade.notes)
        line.append(text(language, "semicolon").join(notes))
        lines.append(line)
    write_csv(path, head, lines, language)


def write_unread(path: Path, unread: Sequence[Unread], language: str = "en") -> None:
    """The rows of the sheet that count for nothing, and why."""
    head = ["line", "student", "link", "reason"]
    lines = [
        [str(e.entry.line), e.entry.student, e.entry.link, translated(language, e.reason)]
        for e in unread
    ]
    write_csv(path, head, lines, language)
