"""`gradebook.csv`: a line for each student, as spreadsheets open it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from grader import tasks
from grader.report.files import write_atomically
from grader.submission.choose import Unread
from grader.submission.grades import StudentGrade, words

# A spreadsheet takes what begins so for a formula; the wide ones where Chinese is typed.
# Behind a semicolon, a tab or a new line too, where spreadsheets may see the end of a cell.
_FORMULA: Final = re.compile(r"""(^|[;；\t\r\n])([\s"]*)(?=[=+\-@＝＋－＠])""")
_BEGINS: Final = re.compile("^ *[\t\r]")
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
#: Spreadsheets take text for UTF-8 when it begins with this.
_BOM: Final = "\ufeff"


def write_gradebook(
    path: Path, grades: Sequence[StudentGrade], selected: Sequence[tasks.Task]
) -> None:
    """Student, status, grade, points by assignment and task, commit, lateness, notes; at once."""
    ids = [task.id for task in selected]
    keys = list(dict.fromkeys(each.partition(".")[0] for each in ids))
    head = ["student", "name", "status", "grade", "points", "max_points"]
    head += [*keys, *(f"{key} late" for key in keys), "commit", "link", "submitted"]
    head += [*ids, *(f"{each} status" for each in ids), "note"]
    lines = [head]
    for grade in grades:
        points = grade.assignments
        line = [grade.student, grade.name, grade.status]
        line += [f"{grade.grade:g}", f"{grade.points:g}", f"{grade.max_points:g}"]
        line += [f"{points[key].points:g}" if key in points else "" for key in keys]
        line += [
            words(points[key].late) if key in points and points[key].factor < 1 else ""
            for key in keys
        ]
        line.append(" ".join(row.sha for row in grade.rows if row.sha))
        line.append(" ".join(row.pasted for row in grade.rows))
        times = [row.submitted.isoformat(" ") for row in grade.rows if row.submitted]
        line.append("; ".join(times))
        line += [f"{grade.task_points[i]:g}" if i in grade.task_points else "" for i in ids]
        line += [grade.task_statuses.get(each, "") for each in ids]
        line.append("; ".join(grade.notes))
        lines.append(line)
    write_csv(path, lines)


def write_unread(path: Path, unread: Sequence[Unread]) -> None:
    """The rows of the sheet that count for nothing, and why."""
    head = ["line", "student", "link", "reason"]
    lines = [[str(e.entry.line), e.entry.student, e.entry.link, e.reason] for e in unread]
    write_csv(path, [head, *lines])


def write_csv(path: Path, lines: Sequence[Sequence[str]]) -> None:
    """UTF-8 with a mark at its beginning, no cell a formula, in one step."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerows([[harmless(cell) for cell in line] for line in lines])
    write_atomically(path, _BOM + text.getvalue())


def harmless(cell: str) -> str:
    """What a student wrote must not become a formula in the teacher's spreadsheet."""
    plain = _FORMULA.sub(r"\1'\2", _CONTROL.sub("", cell))
    if _BEGINS.match(plain):
        plain = f"'{plain}"
    return " ".join(re.split(r"\r\n|[\t\r\n]", plain))
