"""The sheet of a batch: who handed in which link, when, for what.

A CSV or TSV file as a form or a spreadsheet exports it, one row per submission. Columns are found
by the words of their heads, in English or Chinese, or named by options; without a head, the first
column names the student and the last holds the link.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Final

from grader.submission.course import Columns
from grader.submission.times import BadTime, day_first, parse_time, zone_of_header

# From the surest word to the least sure; an ASCII word counts only as a whole word.
_WORDS: Final = {
    "link": ("link", "url", "commit", "链接", "鏈接", "网址", "地址", "repository", "repo",
             "仓库", "submission", "提交"),
    "student": ("student id", "student number", "学号", "學號", "student", "id", "login",
                "username", "user", "email", "邮箱", "账号", "name", "姓名", "学生", "學生"),
    "name": ("name", "姓名", "名字", "full name"),
    "time": ("timestamp", "submitted at", "time", "date", "提交时间", "时间", "時間", "日期",
             "时间戳", "时间戳记"),
    "assignment": ("assignment", "homework", "作业", "作業"),
}  # fmt: skip


class BadSheet(ValueError):
    """A sheet that cannot be read; the message names the file and the line."""


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
    rows = _rows(text)
    if not rows:
        raise BadSheet(f"{path} is empty")
    places = _places(rows[0][1], columns, path)
    if places is None:
        places = {"student": 0, "link": -1}
        head: list[str] = []
    else:
        head, rows = rows[0][1], rows[1:]
    when, time_notes = _reader_of_times(rows, places.get("time"), head, columns, zone)
    entries = [_entry(line, row, places, when, path) for line, row in rows]
    return Sheet(tuple(entries), "time" in places, (*notes, *time_notes))


def _rows(text: str) -> list[tuple[int, list[str]]]:
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max("\t;,", key=first.count)
    csv.field_size_limit(1 << 20)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows = []
    line = 1
    try:
        for row in reader:
            # A quoted cell may span lines: a row is named by its first.
            begin, line = line, reader.line_num + 1
            cells = [" ".join(cell.replace("\ufeff", "").split()) for cell in row]
            if any(cells):
                rows.append((begin, cells))
    except csv.Error as error:
        raise BadSheet(f"line {line}: {error}") from None
    return rows


def _places(header: Sequence[str], columns: Columns, path: Path) -> dict[str, int] | None:
    """Places of the columns in a header; None when the row is none."""
    words = [cell.casefold() for cell in header]
    places: dict[str, int] = {}
    for kind in ("student", "name", "link", "time", "assignment"):
        wanted = getattr(columns, kind)
        if wanted is None:
            continue
        matches = [place for place, word in enumerate(words) if word == wanted.strip().casefold()]
        if not matches:
            raise BadSheet(f"{path}: no column is named {wanted!r}: there are {_listed(header)}")
        places[kind] = matches[0]
    if not places and any("://" in word or "git@" in word or "/" in word for word in words):
        return None
    for kind in ("time", "link", "assignment", "student", "name"):
        if kind not in places:
            place = _find(words, kind, set(places.values()))
            if place is not None:
                places[kind] = place
    if "link" not in places:
        if columns != Columns() or len(header) > 2:
            raise BadSheet(f"{path}: no column of links was found: there are {_listed(header)}")
        return None
    if "student" not in places:
        free = [place for place in range(len(header)) if place not in places.values()]
        places["student"] = places.pop("name") if "name" in places else (free or [0])[0]
    return places


def _listed(header: Sequence[str]) -> str:
    """The heads of columns, as many as go into a line."""
    shown = ", ".join(repr(head[:40]) for head in header[:10])
    return f"{shown}, …" if len(header) > 10 else shown


def _find(words: Sequence[str], kind: str, taken: set[int]) -> int | None:
    for wanted in _WORDS[kind]:
        whole = rf"(?<![a-z]){re.escape(wanted)}s?(?![a-z])" if wanted.isascii() else wanted
        matches = [
            place
            for place, word in enumerate(words)
            if place not in taken and re.search(whole, word)
        ]
        if matches:
            # A form's own columns come first, so that the last of links is the one asked for.
            return matches[-1] if kind == "link" else matches[0]
    return None


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


def _entry(
    line: int, row: list[str], places: dict[str, int], when: _When | None, path: Path
) -> Entry:
    if len(row) < 2 or len(row) <= places["student"]:
        raise BadSheet(f"{path}:{line}: expected a student and a link, got {row!r:.200}")
    if not row[places["student"]]:
        raise BadSheet(f"{path}:{line}: nobody is named")

    def cell(kind: str) -> str:
        place = places.get(kind)
        if place is None or place >= len(row):
            return ""
        return row[place]

    time, problem = None, ""
    if when is not None:
        try:
            time = when(cell("time"))
        except BadTime as error:
            problem = f"its time cannot be read: {error}"
    student, name = cell("student"), cell("name")
    return Entry(student, cell("link"), line, name, time, cell("assignment"), problem)
