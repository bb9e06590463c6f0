"""The sheet of a batch: who handed in which link, when, for what.

A CSV or TSV file as a form or a spreadsheet exports it, one row per submission. Columns are found
by the words of their heads, in English or Chinese (see `sheet_columns`), or named by options.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Final, Literal

from grader.submission.course import Columns
from grader.submission.sheet_columns import ADDRESS, BadSheet, find_columns, taken
from grader.submission.times import BadTime, day_first, parse_time, zone_of_header

__all__ = ["BadSheet", "Entry", "Sheet", "differing_in_case", "plain_student", "read_sheet"]

# Controls, marks that turn the direction of text, and the mark of the order of bytes.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")
# Excel's own first line.
_SEPARATOR: Final = re.compile(r'\s*"?sep=([\t;,|])"?\s*', re.IGNORECASE)


@dataclass(frozen=True)
class Entry:
    """One row. line: its number in the sheet, from 1. link: as it was pasted.

    time: None where the sheet has none. problem: what makes the row count for nothing.
    """

    student: str
    link: str
    line: int
    name: str = ""
    time: datetime | None = None
    assignment: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Sheet:
    """entries: in the sheet's order. timed: it has a column of times. notes: for the teacher."""

    entries: tuple[Entry, ...]
    timed: bool = False
    notes: tuple[str, ...] = ()


def read_text(path: Path) -> tuple[str, str]:
    """(text, encoding) of a sheet: UTF-8 with or without BOM, UTF-16 with BOM, GB 18030.

    Raises `BadSheet`, OSError.
    """
    data = path.read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        candidates = ["utf-16"]
    else:
        candidates = ["utf-8-sig", "gb18030"]
    for encoding in candidates:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" in text or (encoding == "gb18030" and re.search("[\x80-\x9f\ue000-\uf8ff]", text)):
            continue
        return text, encoding
    if data.startswith((b"PK", b"\xd0\xcf\x11\xe0")):
        raise BadSheet(f"{path} is a spreadsheet's own file: save it as CSV first")
    raise BadSheet(f"{path} is text neither in UTF-8 nor in GBK (GB 18030)")


def read_sheet(path: Path, columns: Columns | None = None, zone: tzinfo | None = None) -> Sheet:
    """Read it. zone: of times that name none, unless the head of their column does;
    UTC by default.

    Raises `BadSheet`, OSError.
    """
    columns = columns or Columns()
    text, encoding = read_text(path)
    notes = []
    if encoding == "gb18030":
        notes.append(f"{path.name} is not UTF-8: it was read as GBK (GB 18030)")
    rows, spans, delimiter = _rows(text, path)
    if not rows:
        raise BadSheet(f"{path} is empty")
    places, above = find_columns(rows, columns, path)
    width = max(2, len(rows[max(0, above - 1)][1]))
    swallowed, doubts = _swallowed(spans, delimiter, places["link"], width)
    if swallowed is not None and delimiter == "\t":
        rows, spans, delimiter = _rows(text, path, quoted=False)
        places, above = find_columns(rows, columns, path)
    elif swallowed is not None:
        raise BadSheet(_quote(path, swallowed))
    head = rows[above - 1][1] if above else []
    rows = rows[above:]
    notes.append(taken(places, head))
    when, time_notes = _reader_of_times(rows, places.get("time"), head, columns, zone)
    entries = [_entry(line, row, places, when) for line, row in rows]
    if entries and not any(entry.student for entry in entries):
        raise BadSheet(f"{path}:{entries[0].line}: nobody is named")
    notes += [*doubts, *time_notes, *differing_in_case(entry.student for entry in entries)]
    return Sheet(tuple(entries), "time" in places, tuple(notes))


def plain_student(text: str) -> str:
    """The one form of a student that may be written in several: full-width digits, é and e + ´."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def differing_in_case(students: Iterable[str]) -> list[str]:
    """A warning for each two students that may well be one."""
    first: dict[str, str] = {}
    warnings = []
    for student in dict.fromkeys(each for each in students if each):
        other = first.setdefault(student.casefold(), student)
        if other != student:
            warnings.append(
                f"{other!r} and {student!r} differ only in case: they count as two students"
            )
    return warnings


def _clean(cell: str) -> str:
    """On one line, without what a terminal would obey or hide."""
    return _CONTROL.sub("", " ".join(cell.split())).strip()


_Rows = list[tuple[int, list[str]]]


def _rows(text: str, path: Path, quoted: bool = True) -> tuple[_Rows, dict[int, list[str]], str]:
    """(rows by their first line, lines of those that span several, delimiter)."""
    lines = list(io.StringIO(text, newline=""))
    start, delimiter = 0, ""
    told = _SEPARATOR.fullmatch(lines[0].strip("\r\n")) if lines else None
    if told is not None:
        start, delimiter = 1, told[1]
    else:
        marks = (max("\t;,", key=line.count) for line in lines[:10] if re.search("[\t;,]", line))
        delimiter = next(marks, ",")
    csv.field_size_limit(1 << 20)
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    reader = csv.reader(lines[start:], delimiter=delimiter, strict=quoted, quoting=quoting)
    rows: _Rows = []
    spans = {}
    line = start + 1
    try:
        for row in reader:
            # A quoted cell may span lines: a row is named by its first.
            begin, line = line, start + reader.line_num + 1
            if line > begin + 1:
                spans[begin] = lines[begin - 1 : line - 1]
            cells = [_clean(cell if quoted else _unquoted(cell)) for cell in row]
            if any(cells):
                rows.append((begin, cells))
    except csv.Error as error:
        if "limit" in str(error):
            raise BadSheet(f"line {line}: {error}") from None
        if delimiter == "\t":
            return _rows(text, path, quoted=False)
        raise BadSheet(_quote(path, line)) from None
    return rows, spans, delimiter


def _unquoted(cell: str) -> str:
    whole = re.fullmatch(r'\s*"([^"]*)"\s*', cell)
    return whole[1] if whole else cell


def _quote(path: Path, line: int) -> str:
    return (
        f"{path}:{line}: a quotation mark opens a cell here and does not close it, so that other "
        "rows would be lost: remove it or write it twice within quotation marks"
    )


def _swallowed(
    spans: dict[int, list[str]], delimiter: str, link: int, width: int
) -> tuple[int | None, list[str]]:
    """(first line of a row with other rows and their links in a cell, notes of such without)."""
    notes = []
    for begin, lines in spans.items():
        within = [cells for line in lines[1:] if len(cells := line.split(delimiter)) >= width]
        if any(ADDRESS.search(cells[link]) for cells in within):
            return begin, []
        if within:
            notes.append(
                f"line {begin}: a cell goes on for {len(lines)} lines: if these are rows, a "
                "quotation mark is not closed"
            )
    return None, notes


_When = Callable[[str], datetime]


def _reader_of_times(
    rows: Sequence[tuple[int, list[str]]],
    place: int | None,
    head: Sequence[str],
    columns: Columns,
    zone: tzinfo | None,
) -> tuple[_When | None, list[str]]:
    if place is None:
        return None, []
    texts = [row[place] for _, row in rows if len(row) > place]
    own = zone_of_header(head[place])
    first = day_first(texts)
    notes = []
    slashes = any(re.match(r"\d{1,2}[-/.]\d{1,2}[-/.]\d{4}", text) for text in texts)
    if first is None and slashes and columns.time_format is None:
        notes.append("times like 3/4/2026 are read month first: [columns] time_format says else")
    chosen = own or zone or UTC

    def when(text: str) -> datetime:
        return parse_time(text, chosen, day_before_month=bool(first), pattern=columns.time_format)

    return when, notes


def _entry(line: int, row: list[str], places: dict[str, int], when: _When | None) -> Entry:
    def cell(kind: str) -> str:
        place = places.get(kind)
        if place is None or place >= len(row):
            return ""
        return row[place]

    student, name, link = plain_student(cell("student")), cell("name"), cell("link")
    time, problem = None, ""
    if not student:
        problem = "nobody is named"
    elif len(row) < 2:
        link, problem = "", f"expected a student and a link, got {row!r:.200}"
    elif when is not None:
        try:
            time = when(cell("time"))
        except BadTime as error:
            problem = f"its time cannot be read: {error}"
    return Entry(student, link, line, name, time, cell("assignment"), problem)
