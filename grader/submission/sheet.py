"""The sheet of a batch: who handed in which link.

A CSV or TSV file as a form or a spreadsheet exports it: one row per submission, later rows are
later. A header is recognised by its words; without one, the first column names the student and the
last holds the link.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_STUDENT_WORDS = ("student", "name", "id", "login", "user", "学号", "姓名", "学生")
_LINK_WORDS = ("link", "url", "repo", "commit", "submission", "链接", "提交")
_GITHUB = re.compile(
    r"https?://(?:www\.)?github\.com/([^/\s]+)/([^/\s]+?)(?:\.git)?"
    r"(?:/(?:tree|commits?|blob))(?:/)([^/?#\s]+)(?:[/?#]\S*)?",
    re.IGNORECASE,
)
_LOCAL = re.compile(r"(?:file://)?(/\S+?)/(?:tree|commits?)/([^/?#\s]+)/?")
_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHA = re.compile(r"[0-9a-f]{40}")


class BadLink(ValueError):
    """A link that leads to no commit; the message says what was expected and what came."""


class BadSheet(ValueError):
    """A sheet that cannot be read; the message names the file and the line."""


@dataclass(frozen=True)
class Link:
    """A commit in a repository. url: what git is given; sha: 40 hexadecimal digits."""

    url: str
    sha: str


@dataclass(frozen=True)
class Entry:
    """One row: line is its number in the sheet, from 1; link as it was pasted."""

    student: str
    link: str
    line: int


def parse_link(text: str, *, allow_local: bool = False) -> Link:
    """The commit that a pasted link names.

    allow_local: also take `/path/to/repository/tree/SHA`. Raises `BadLink`.
    """
    given = text.strip().strip("<>\"'")
    local = _LOCAL.fullmatch(given) if allow_local else None
    if local is not None:
        return Link(local[1], _sha(local[2], given))
    match = _GITHUB.fullmatch(given)
    if match is None:
        raise BadLink(
            f"expected https://github.com/USER/REPOSITORY/tree/COMMIT, got {given[:200]!r}"
        )
    user, repository, commit = match.groups()
    for what, name in (("user", user), ("repository", repository)):
        if _NAME.fullmatch(name) is None:
            raise BadLink(f"{name[:100]!r} is no name of a {what} ({given[:200]!r})")
    return Link(f"https://github.com/{user}/{repository}.git", _sha(commit, given))


def _sha(commit: str, given: str) -> str:
    sha = commit.lower()
    if _SHA.fullmatch(sha) is None:
        raise BadLink(
            f"expected the 40 hexadecimal digits of a commit, got {commit[:100]!r} "
            f"({given[:200]!r})"
        )
    return sha


def read_sheet(path: Path) -> list[Entry]:
    """The rows of a sheet, in its order. Raises `BadSheet`, OSError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadSheet(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    first = text.partition("\n")[0]
    delimiter = max("\t;,", key=first.count)
    rows = [
        (line, [cell.strip() for cell in row])
        for line, row in enumerate(csv.reader(text.splitlines(), delimiter=delimiter), start=1)
    ]
    rows = [(line, row) for line, row in rows if any(row)]
    if not rows:
        raise BadSheet(f"{path} is empty")
    columns = _columns(rows[0][1])
    if columns is not None:
        rows = rows[1:]
    entries = []
    for line, row in rows:
        student, link = columns or (0, len(row) - 1)
        if len(row) <= max(student, link) or (len(row) < 2 and columns is None):
            raise BadSheet(f"{path}:{line}: expected a student and a link, got {row!r:.200}")
        if not row[student]:
            raise BadSheet(f"{path}:{line}: nobody is named")
        entries.append(Entry(row[student], row[link], line))
    return entries


def _columns(header: Sequence[str]) -> tuple[int, int] | None:
    """Places of student and link in a header; None when the row is none."""
    words = [cell.casefold() for cell in header]
    if any("://" in word or "/" in word for word in words):
        return None
    links = [place for place, word in enumerate(words) if any(w in word for w in _LINK_WORDS)]
    if not links:
        return None
    students = [
        place
        for wanted in _STUDENT_WORDS
        for place, word in enumerate(words)
        if wanted in word and place != links[-1]
    ]
    return (students[0] if students else 0), links[-1]


def latest_valid(
    entries: Sequence[Entry], *, allow_local: bool = False
) -> dict[str, tuple[Entry, Link | BadLink]]:
    """Each student's last valid link; where none is valid, why the last one is not."""
    chosen: dict[str, tuple[Entry, Link | BadLink]] = {}
    for entry in entries:
        found: Link | BadLink
        try:
            found = parse_link(entry.link, allow_local=allow_local)
        except BadLink as bad:
            found = bad
        before = chosen.get(entry.student)
        if before is None or isinstance(found, Link) or isinstance(before[1], BadLink):
            chosen[entry.student] = (entry, found)
    return chosen
