"""`course.toml`: what a course grades, until when, and from where."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Final, Literal

from grader import tasks
from grader.checks.settings import CannotRun
from grader.submission.times import BadTime, in_years, parse_time, parse_zone

HOSTS: Final = ("github.com", "gitee.com")
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?")
_BEFORE: Final = re.compile(r"\S+/|[\w.-]+@[\w.-]+:")
_KNOWN: Final = (
    "name", "timezone", "deadline", "hosts", "mirrors", "late", "assignments", "columns", "limits",
)  # fmt: skip


@dataclass(frozen=True)
class Late:
    """What a late submission is worth.

    per_day: share of its points lost per started day. days: after so many it counts for nothing.
    grace: so much later is still in time. prefer: which of a student's links counts when there
    is one before the deadline and another after it.
    """

    per_day: float = 0.0
    days: float = 0.0
    grace: timedelta = timedelta(0)
    prefer: Literal["in time", "latest"] = "in time"

    def factor(self, late: timedelta) -> float:
        """The share of the points that remains, in [0, 1]."""
        if late <= self.grace:
            return 1.0
        days = -(-late // timedelta(days=1))
        if late > timedelta(days=self.days):
            return 0.0
        return max(0.0, 1.0 - self.per_day * days)


@dataclass(frozen=True)
class Columns:
    """Heads of the sheet's columns, where they cannot be found by their words."""

    student: str | None = None
    name: str | None = None
    link: str | None = None
    time: str | None = None
    assignment: str | None = None
    time_format: str | None = None


@dataclass(frozen=True)
class Course:
    """All that `course.toml` says. weights and deadlines: by short name of an assignment, "a1".

    hosts: whose links are taken. mirrors: host → what comes before `user/repository.git` instead
    of `https://host/`. seconds: wall time for one submission; None follows from its tasks.
    """

    name: str = ""
    zone: tzinfo = UTC
    deadline: datetime | None = None
    hosts: tuple[str, ...] = HOSTS
    mirrors: Mapping[str, str] = field(default_factory=dict)
    late: Late = Late()
    weights: Mapping[str, float] = field(default_factory=dict)
    deadlines: Mapping[str, datetime] = field(default_factory=dict)
    columns: Columns = Columns()
    seconds: float | None = None

    def deadline_of(self, assignment: str) -> datetime | None:
        """When "a1" is due; None when nothing says."""
        return self.deadlines.get(assignment, self.deadline)


def load_course(path: Path) -> Course:
    """Read the file. Raises `CannotRun` that names file and key for what makes no sense."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CannotRun(f"{path}: {error}") from None
    except RecursionError:
        raise CannotRun(f"{path}: it is nested too deeply") from None
    try:
        return _course(document)
    except (BadTime, _BadValue, tasks.UnknownTask) as error:
        raise CannotRun(f"{path}: {error}") from None


# Ten years: beyond any course, and none of the reckoning overflows.
_DAYS: Final = 3650


class _BadValue(ValueError):
    pass


def _course(document: dict[str, Any]) -> Course:
    _only(document, _KNOWN, "")
    zone = parse_zone(_get(document, "timezone", str, "UTC"))
    deadlines, weights = {}, {}
    for name, settings in _get(document, "assignments", dict, {}).items():
        key = _assignment(name)
        if key in weights:
            raise _BadValue(f"assignments.{name}: {key} stands here twice, by both of its names")
        if not isinstance(settings, dict):
            settings = {"weight": settings}
        _only(settings, ("weight", "deadline"), f"assignments.{name}.")
        weights[key] = _number(settings, "weight", 1.0)
        if "deadline" in settings:
            deadlines[key] = moment(settings["deadline"], zone)
    late = _get(document, "late", dict, {})
    _only(late, ("per_day", "days", "grace_minutes", "prefer"), "late.")
    prefer = late.get("prefer", "in time")
    if prefer not in ("in time", "latest"):
        raise _BadValue(f"late.prefer: expected 'in time' or 'latest', got {prefer!r}")
    columns = _get(document, "columns", dict, {})
    _only(columns, tuple(Columns.__dataclass_fields__), "columns.")
    limits = _get(document, "limits", dict, {})
    _only(limits, ("seconds",), "limits.")
    if weights and not any(weights.values()):
        raise _BadValue("assignments: every weight is 0, so that nobody can have a grade")
    hosts = [_host(each, "hosts") for each in _get(document, "hosts", list, list(HOSTS))]
    mirrors = {}
    for host, before in _get(document, "mirrors", dict, {}).items():
        if not isinstance(before, str) or _BEFORE.fullmatch(before) is None:
            raise _BadValue(
                f"mirrors.{host}: expected what comes before USER/REPOSITORY.git, with a / at its "
                f"end, like https://mirror.example.org/, got {before!r}"
            )
        mirrors[_host(host, "mirrors")] = before
    return Course(
        name=_get(document, "name", str, ""),
        zone=zone,
        deadline=moment(document["deadline"], zone) if "deadline" in document else None,
        hosts=tuple(dict.fromkeys([*hosts, *mirrors])),
        mirrors=mirrors,
        late=Late(
            _number(late, "per_day", 0.0, most=1.0),
            _number(late, "days", 0.0, most=_DAYS),
            timedelta(minutes=_number(late, "grace_minutes", 0.0, most=24 * 60 * _DAYS)),
            prefer,
        ),
        weights=weights,
        deadlines=deadlines,
        columns=Columns(**{key: _get(columns, key, str, "") for key in columns}),
        seconds=_number(limits, "seconds", 0.0, most=1e6) or None,
    )


def moment(value: object, zone: tzinfo) -> datetime:
    """A deadline of TOML or of the command line; a bare date ends with its day."""
    if isinstance(value, datetime):
        in_years(value)
        return value if value.tzinfo is not None else value.replace(tzinfo=zone)
    if isinstance(value, date):
        return in_years(datetime(value.year, value.month, value.day, tzinfo=zone)) + timedelta(
            days=1
        )
    if isinstance(value, str):
        read = parse_time(value, zone)
        return read if ":" in value else read + timedelta(days=1)
    raise BadTime(f"expected a time, got {value!r}")


def _assignment(name: str) -> str:
    for each in tasks.COURSE:
        if name in (each.key, each.name):
            return each.key
    raise tasks.UnknownTask(f"assignments.{name}: there is no such assignment")


def _host(value: object, key: str) -> str:
    if not isinstance(value, str) or _HOST.fullmatch(value) is None:
        raise _BadValue(f"{key}: expected the name of a host like github.com, got {value!r}")
    return value.lower()


def _only(found: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in found:
        name = f"{where}{key}"
        if key not in known:
            raise _BadValue(f"{name} is unknown: expected one of {', '.join(known)}")


def _get(document: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = document.get(key, default)
    if not isinstance(value, kind):
        raise _BadValue(f"{key}: expected {kind.__name__}, got {value!r}")
    return value


def _number(document: Mapping[str, Any], key: str, default: float, most: float = 1e9) -> float:
    value = document.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise _BadValue(f"{key}: expected a number from 0 to {most:g}, got {value!r}")
    return float(value)
