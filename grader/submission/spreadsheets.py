"""CSV files for spreadsheets, in the language of the batch; the order of columns is one in all.

`read_csv` gives English names and statuses back, whatever language a file is in.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

from grader.checks.results import TaskStatus
from grader.report import catalogue
from grader.report.files import write_atomically
from grader.report.language import WORDS
from grader.submission.grades import Status

# A spreadsheet takes what begins so for a formula; the wide ones where Chinese is typed.
# Behind a semicolon, a tab or a new line too, where spreadsheets may see the end of a cell.
_FORMULA: Final = re.compile(r"""(^|[;；\t\r\n])([\s"]*)(?=[=+\-@＝＋－＠])""")
_BEGINS: Final = re.compile("^ *[\t\r]")
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
#: Spreadsheets take text for UTF-8 when it begins with this.
_BOM: Final = "\ufeff"
#: Heads, and the words that say the same in the catalogue; all others are their own.
_HEADS: Final = {
    "points": "points earned",
    "max_points": "points to be earned",
    "submitted": "handed in",
    "note": "remarks",
    "line": "row",
    "low": "lowest",
    "high": "highest",
}
_KNOWN: Final = (
    "student", "name", "status", "grade", "link", "reason", "kind", "students", "where", "what",
    "check", "baseline", "place", "ratio", *_HEADS,
)  # fmt: skip
#: Behind the name of an assignment or a task: "a1 late".
_BEHIND: Final = ("late", "status")
_KINDS: Final = ("same commit", "alike", "unusual", "worlds", "history")
_VALUES: Final = (*get_args(Status), *get_args(TaskStatus), *_KINDS)


def fixed(language: str, word: str) -> str:
    """A status, or a kind of suspicion, in the language of a file."""
    return word if language != "zh" else catalogue.find(WORDS.get(word, word)) or word


def head_of(language: str, name: str) -> str:
    """The head of a column: "student", "a1", "a1 late"."""
    if language != "zh":
        return name
    before, _, behind = name.rpartition(" ")
    if behind in _BEHIND and before:
        return f"{before} {fixed(language, behind)}"
    return fixed(language, _HEADS.get(name, name))


def write_csv(
    path: Path, heads: Sequence[str], lines: Sequence[Sequence[str]], language: str = "en"
) -> None:
    """UTF-8 with a mark at its beginning, no cell a formula, in one step. heads: in English."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    first = [head_of(language, head) for head in heads]
    writer.writerows([[harmless(cell) for cell in line] for line in [first, *lines]])
    write_atomically(path, _BOM + text.getvalue())


def read_csv(path: Path) -> list[dict[str, str]]:
    """The lines of a file of `write_csv` by their English heads; statuses and kinds in English."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        heads, *lines = csv.reader(file)
    known = {head_of("zh", name): name for name in reversed(_KNOWN)}
    if "kind" in map(known.get, heads):  # of suspicions: the one head that two names share
        known[head_of("zh", "students")] = "students"
    behind = {fixed("zh", word): word for word in _BEHIND}
    names = []
    for head in heads:
        before, space, last = head.rpartition(" ")
        names.append(known.get(head, f"{before}{space}{behind.get(last, last)}"))
    values = {fixed("zh", word): word for word in reversed(_VALUES)}
    return [
        {
            name: values.get(cell, cell) if name.endswith(("status", "kind")) else cell
            for name, cell in zip(names, line, strict=True)
        }
        for line in lines
    ]


def harmless(cell: str) -> str:
    """What a student wrote must not become a formula in the teacher's spreadsheet."""
    plain = _FORMULA.sub(r"\1'\2", _CONTROL.sub("", cell))
    if _BEGINS.match(plain):
        plain = f"'{plain}"
    return " ".join(re.split(r"\r\n|[\t\r\n]", plain))
