"""Which of a student's links counts: the latest valid one before the deadline of an assignment."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from grader import tasks
from grader.checks.settings import CannotRun
from grader.submission.course import Course
from grader.submission.links import BadLink, Link, Rules, parse_link
from grader.submission.numerals import with_digits
from grader.submission.sheet import Entry, Sheet, differing_in_case

#: Student and link → what the host said of it.
Dead = Mapping[tuple[str, Link], str]

NOT_PINNED: Final = "it names a branch or tag, not a commit: what it leads to can change"

_NAMED: Final = re.compile(
    r"(?<![a-z0-9.])(assignment|homework|hw|a|作业|作業|第)?[ _#-]*([0-9]{1,9})(?![0-9])"
)
# 第1、2次: 第 stands for each of them.
_LISTED: Final = re.compile(r"第\s*\d{1,2}(?:\s*[、,和及]\s*\d{1,2})+(?=\s*[次份个個])")


@dataclass(frozen=True)
class Unread:
    """A row that counts for nothing, and why."""

    entry: Entry
    reason: str


@dataclass
class Submission:
    """A link of a student that counts, for the assignments ("a1") for which it does.

    late: by assignment, how long after its deadline; zero in time.
    """

    student: str
    name: str
    link: Link
    pasted: str
    line: int
    time: datetime | None
    late: dict[str, timedelta] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass
class Choice:
    """What a sheet comes to. submissions: in the order of the sheet's students.

    without: students without any link that counts → why, of the last row. unread: all bad rows.
    alike: students whose names differ only in case from others' → warnings.
    """

    submissions: list[Submission]
    without: dict[str, Unread]
    unread: list[Unread]
    names: dict[str, str]
    alike: dict[str, list[str]] = field(default_factory=dict)


def choose(
    sheet: Sheet,
    course: Course,
    assignments: Sequence[str],
    *,
    strict: bool = False,
    local: bool = False,
    dead: Dead | None = None,
) -> Choice:
    """Choose each student's link for each of the assignments ("a1", …).

    strict: refuse links to branches and tags. local: take paths for links. dead: links that lead
    nowhere, in the place of which the student's next earlier one counts.
    Raises `CannotRun` for a deadline and a sheet without times.
    """
    if not sheet.timed and any(course.deadline_of(key) is not None for key in assignments):
        raise CannotRun(
            "the sheet has no column of times, so that nobody can say what was handed in before "
            "the deadline: name the column with --time-column, or grade without a deadline with "
            "--deadline none"
        )
    rules = Rules(course.hosts, course.mirrors, local)
    read: dict[str, list[tuple[Entry, Link, tuple[str, ...]]]] = {}
    unread: list[Unread] = []
    names: dict[str, str] = {}
    for entry in sheet.entries:
        if not entry.student:
            unread.append(Unread(entry, entry.problem or "nobody is named"))
            continue
        read.setdefault(entry.student, [])
        names[entry.student] = entry.name or names.get(entry.student, "")
        try:
            link, keys, unknown = _read(entry, rules, assignments, strict)
        except BadLink as error:
            unread.append(Unread(entry, str(error)))
            continue
        if unknown:
            unread.append(Unread(entry, unknown))
        if keys:
            read[entry.student].append((entry, link, keys))
    submissions: list[Submission] = []
    without: dict[str, Unread] = {}
    for student, links in read.items():
        own = _of_student(student, names[student], links, course, assignments, dead or {})
        bad = [each for each in unread if each.entry.student == student]
        if own and bad:
            own[-1].warnings += [f"line {e.entry.line} does not count: {e.reason}" for e in bad]
        elif bad:
            without[student] = bad[-1]
        submissions += own
    differing = differing_in_case(read)
    alike = {who: [each for each in differing if f"{who!r} " in each] for who in read}
    return Choice(submissions, without, unread, names, alike)


def _read(
    entry: Entry, rules: Rules, assignments: Sequence[str], strict: bool
) -> tuple[Link, tuple[str, ...], str]:
    """The link, the assignments that it is for, and what is wrong with others. Raises `BadLink`."""
    if entry.problem:
        raise BadLink(entry.problem)
    link = parse_link(entry.link, rules)
    if strict and not link.pinned:
        raise BadLink(
            f"{entry.link[:200]!r} names a branch or tag, not a commit (--strict): what it leads "
            "to can change"
        )
    if not entry.assignment:
        return link, tuple(assignments), ""
    found, unknown = assignments_of(entry.assignment)
    if not found:
        raise BadLink(f"{entry.assignment[:100]!r} is no assignment: expected a name like a0")
    problem = f"{unknown[0]!r} is no assignment: expected a name like a0" if unknown else ""
    return link, tuple(key for key in found if key in assignments), problem


def assignments_of(text: str) -> tuple[list[str], list[str]]:
    """(assignments that a cell names, names in it that are none): "a0, a1", "作业2", "第三次"."""
    known = {each.key for each in tasks.COURSE}
    plain = with_digits(unicodedata.normalize("NFKC", text).casefold())
    plain = _LISTED.sub(lambda m: re.sub(r"(\d+)", r"第\1", m[0].replace("第", "")), plain)
    named = _NAMED.findall(plain)
    keys = {f"{mark}{digits}": f"a{int(digits)}" for mark, digits in named}
    sure = [name for name in keys if not name.isdecimal()]
    # Beside a1, a bare number is a year or a part.
    names = sure if any(keys[name] in known for name in sure) else list(keys)
    found = list(dict.fromkeys(keys[name] for name in names if keys[name] in known))
    return found, [name for name in names if keys[name] not in known]


def _of_student(
    student: str,
    name: str,
    links: Sequence[tuple[Entry, Link, tuple[str, ...]]],
    course: Course,
    assignments: Sequence[str],
    dead: Dead,
) -> list[Submission]:
    """One submission for each different link that counts for some assignment."""
    chosen: dict[int, Submission] = {}
    for key in assignments:
        candidates = _in_order(each for each in links if key in each[2])
        if not candidates:
            continue
        (entry, link, late, passed_over), gone = _latest_alive(candidates, course, key, dead)
        same = next((c for c in chosen.values() if c.link == link), None)
        submission = same or chosen.setdefault(
            entry.line, Submission(student, name, link, entry.link, entry.line, entry.time)
        )
        submission.late[key] = late
        if same is None and not link.pinned:
            submission.warnings.append(NOT_PINNED)
        submission.warnings += [each for each in gone if each not in submission.warnings]
        if passed_over:
            rows = ", ".join(str(each.line) for each in passed_over)
            submission.warnings.append(f"{key}: handed in again after the deadline (line {rows})")
    return list(chosen.values())


_Candidate = tuple[Entry, Link, tuple[str, ...]]
#: (entry, link, how late, later rows that do not count)
_Latest = tuple[Entry, Link, timedelta, list[Entry]]


def _in_order(candidates: Iterable[_Candidate]) -> list[_Candidate]:
    """By time where the sheet has times; rows of one moment, and all others, as they stand."""
    return sorted(candidates, key=lambda each: each[0].time.timestamp() if each[0].time else 0.0)


def _latest_alive(
    candidates: Sequence[_Candidate], course: Course, key: str, dead: Dead
) -> tuple[_Latest, list[str]]:
    """(the latest whose link is not dead, what to tell of dead ones); the latest if all are."""
    latest = found = _latest(candidates, course, key)
    left = list(candidates)
    gone: list[tuple[Entry, str]] = []
    while (why := dead.get((found[0].student, found[1]))) is not None:
        gone.append((found[0], why))
        left = [each for each in left if each[1] != found[1]]
        if not left:
            lines = ", ".join(str(entry.line) for entry, _ in gone[1:])
            return latest, [f"the earlier links are dead, too (line {lines})"] if lines else []
        found = _latest(left, course, key)
    return found, [
        f"the link of line {entry.line} is dead, so that line {found[0].line} counts in its "
        f"place: {why}"
        for entry, why in gone
    ]


def _latest(candidates: Sequence[_Candidate], course: Course, key: str) -> _Latest:
    deadline = course.deadline_of(key)
    if deadline is None:
        entry, link, _ = candidates[-1]
        return entry, link, timedelta(0), []
    in_time = [e for e in candidates if e[0].time and e[0].time <= deadline + course.late.grace]
    if in_time and course.late.prefer == "in time":
        entry, link, _ = in_time[-1]
        after = [each[0] for each in candidates if each not in in_time]
        return entry, link, timedelta(0), after
    # Among the late ones, one that still counts for something goes before one that does not.
    counting = [
        each
        for each in candidates
        if each[0].time and course.late.factor(each[0].time - deadline) > 0
    ]
    entry, link, _ = (counting or candidates)[-1]
    assert entry.time is not None, "rows without a readable time were left out"
    after = [each[0] for each in candidates if each[0].line != entry.line and counting
             and each not in counting]  # fmt: skip
    return entry, link, max(timedelta(0), entry.time - deadline), after
