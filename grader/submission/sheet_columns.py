"""Which column of a sheet holds what, by the words of its head; two equally good ones are refused.

Each pattern is tried on a whole head, lowercase, with spaces for underscores. The first pattern
that some column meets decides.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from grader.submission.course import Columns
from grader.submission.numerals import with_digits


class BadSheet(ValueError):
    """A sheet that cannot be read; the message names the file and the line."""


Rows = Sequence[tuple[int, list[str]]]

_DONE: Final = r"(?<![a-z])(?:submi\w*|complet\w*|finish\w*|end(?:ed)?|hand\w*)(?![a-z])"
_DONE_ZH: Final = "提交|结束|結束|完成|交卷"
_TIME: Final = r"(?<![a-z])(?:time|date|timestamp|at|on)(?![a-z])|时间|時間|日期"
_LINKS: Final = r"(?<![a-z])(?:links?|urls?)(?![a-z])|链接|鏈接|网址"
_HANDED_IN: Final = (
    r"(?<![a-z])(?:commit|repo|repository|submission|homework)(?![a-z])|提交|仓库|作业|作業"
)
_NUMBER: Final = (
    r"学号|學號|(?<![a-z])(?:student|sis user|matriculation) ?(?:id|no|num|number|#)(?![a-z])"
    r"|roster identifier"
)
_PATTERNS: Final = {
    "time": (
        rf"(?=.*(?:{_DONE}|{_DONE_ZH}))(?=.*(?:{_TIME}))|(?<![a-z])timestamp(?![a-z])|时间戳"
        r"|^(?:last )?(?:submitted|completed|modified)(?: \(submission\))?$",
        _TIME,
    ),
    "link": (
        rf"(?=.*(?:{_LINKS}))(?=.*(?:{_HANDED_IN}))",
        _LINKS,
        r"(?<![a-z])(?:commit|repo|repository|submission)(?![a-z])|仓库|提交|地址",
    ),
    "assignment": (
        r"^(?:assignment|homework|作业|作業)$",
        r"(?<![a-z])(?:assignment|homework)(?![a-z])|作业|作業",
    ),
    "student": (
        _NUMBER,
        r"^(?:student|学生|學生)$",
        r"(?<![a-z])(?:login|user ?name|user)(?![a-z])|账号|用户名",
        r"(?<![a-z])e-?mail(?![a-z])|邮箱|邮件",
        r"(?<![a-z])(?:student|name|submitter)(?![a-z])|姓名|名字|学生|學生|提交人",
        r"^id$",
    ),
    "name": (
        r"(?<![a-z])full name(?![a-z])|姓名|名字",
        r"(?<![a-z])(?<!user )(?<!file )name(?![a-z])",
        r"^(?:student|学生|學生)$",
    ),
}  # fmt: skip
_PERSON: Final = (
    r"(?<![a-z])(?:repo|repository|links?|url|assignment|file|partner|teacher|team|class|course"
    r"|time|date|section)(?![a-z])|仓库|链接|作业|教师|老师|队友|班级|课程|时间"
)
_EXCEPT: Final = {
    "time": r"(?<![a-z])(?:start\w*|begin\w*|began|birth\w*|creat\w*|due|deadline|duration|spent"
    r"|zone)(?![a-z])|开始|開始|出生|生日|创建|截止|用时|耗时",
    "link": r"(?<![a-z])(?:comments?|e-?mail|ip|id|status|state|grade|score|time|date"
    r"|name)(?![a-z])|备注|邮箱|邮件|状态|分数|成绩|评语|人|者|时间|日期|方式",
    "assignment": r"(?<![a-z])(?:links?|url|comments?|score|grade)(?![a-z])"
    r"|链接|说明|备注|分数|成绩",
    "student": _PERSON,
    "name": _PERSON,
}
#: What decides where two columns are equally good.
_OPTIONS: Final = {
    "time": "--time-column",
    "link": "--link-column",
    "student": "--student-column",
    "assignment": "[columns] assignment",
}
#: What a cell with a link holds.
ADDRESS: Final = re.compile(r"://|git@|/(?:tree|commits?|blob|pull)/|github\.com/", re.IGNORECASE)
_FIRST_ROWS: Final = 6


def find_columns(rows: Rows, columns: Columns, path: Path) -> tuple[dict[str, int], int]:
    """(places of the columns, how many rows their head takes with all above it).

    No head: the first column names the student and the last holds the link. Raises `BadSheet`.
    """
    tried: list[tuple[int, list[str]]] = []
    named = any(getattr(columns, kind) is not None for kind in _PATTERNS)
    for number, (_, row) in enumerate(rows[:_FIRST_ROWS]):
        if not named and any(ADDRESS.search(cell) for cell in row):
            break
        tried.append((number, row))
        if sum(map(bool, row)) < 2:
            continue  # a title
        places = _places(row, rows[number + 1 :], columns, path)
        if places is not None:
            return places, number + 1
        if not named:
            break  # what holds several cells is no title: nobody may be lost above a head
    widest = max((row for _, row in tried), key=len, default=[])
    for kind in _PATTERNS:
        wanted = getattr(columns, kind)
        if wanted is not None and _plain(wanted) not in map(_plain, widest):
            raise BadSheet(f"{path}: no column is named {wanted!r}: there are {listed(widest)}")
    if tried and tried[0][0] == 0 and (named or len(widest) > 2):
        raise BadSheet(f"{path}: no column of links was found: there are {listed(widest)}")
    return {"student": 0, "link": -1}, 0


def listed(head: Sequence[str]) -> str:
    """The heads of columns, as many as go into a line."""
    shown = ", ".join(repr(each[:40]) for each in head[:10])
    return f"{shown}, …" if len(head) > 10 else shown


def taken(places: dict[str, int], head: Sequence[str]) -> str:
    """What stands where, for the teacher to see."""
    if not head:
        return "no head of columns: the first is taken for the student, the last for the link"
    shown = {kind: repr(head[place][:60]) for kind, place in places.items()}
    student, name, link, time, assignment = (
        shown.get(kind, "—") for kind in ("student", "name", "link", "time", "assignment")
    )
    return (
        f"columns taken: student {student}, name {name}, link {link}, time {time}, "
        f"assignment {assignment}"
    )


def _plain(head: str) -> str:
    plain = unicodedata.normalize("NFKC", head).casefold().replace("_", " ")
    return " ".join(with_digits(plain).split())


def _places(head: Sequence[str], rows: Rows, columns: Columns, path: Path) -> dict[str, int] | None:
    """Places of the columns under a head; None when the row is none."""
    words = [_plain(cell) for cell in head]
    places: dict[str, int] = {}
    by_content = False
    for kind in _PATTERNS:
        wanted = getattr(columns, kind)
        if wanted is not None:
            if _plain(wanted) not in words:
                return None
            places[kind] = words.index(_plain(wanted))
    for kind in ("time", "link", "assignment", "student", "name"):
        if kind in places:
            continue
        found = _best(words, kind, set(places.values()), rows)
        if kind == "link":
            by_content = not found
            found = _with_links(found or range(len(head)), rows, bool(found))
            if not found:
                return None
        if kind == "name":
            found = found[:1]
        if len(found) > 1:
            raise BadSheet(
                f"{path}: {listed([head[place] for place in found])} are equally good for the "
                f"{kind}: say which with {_OPTIONS[kind]}"
            )
        if found:
            places[kind] = found[0]
    if by_content and len(places) < 2:
        return None  # a row of data like the others, but for its link
    if "student" not in places:
        free = [
            place
            for place in range(len(head))
            if place not in places.values() and not _counts(rows, place)
        ]
        if not free:
            raise BadSheet(
                f"{path}: no column says who handed in: there are {listed(head)}: say which does "
                "with --student-column"
            )
        places["student"] = free[0]
    return places


def _best(words: Sequence[str], kind: str, taken_: set[int], rows: Rows) -> list[int]:
    for pattern in _PATTERNS[kind]:
        found = [
            place
            for place, word in enumerate(words)
            if place not in taken_
            and re.search(pattern, word)
            and not re.search(_EXCEPT[kind], word)
            and not (kind == "student" and word == "id" and _counts(rows, place))
        ]
        if found:
            return found
    return []


def _counts(rows: Rows, place: int) -> bool:
    """Whether a column only numbers the rows: 1, 2, 3, …"""
    cells = [row[place] for _, row in rows if len(row) > place and row[place]]
    return len(cells) > 1 and cells == [str(number) for number in range(1, len(cells) + 1)]


def _with_links(found: Sequence[int], rows: Rows, by_head: bool) -> list[int]:
    """Of these, the ones in which the most links stand; a head's word is enough where none does."""
    if by_head and len(found) == 1:
        return list(found)
    counts = {
        place: sum(bool(ADDRESS.search(row[place])) for _, row in rows if len(row) > place)
        for place in found
    }
    most = max(counts.values(), default=0)
    if not most:
        return list(found) if by_head else []
    return [place for place in found if counts[place] == most]
