"""Times as forms and spreadsheets write them, with the zone that the sheet or the course names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_OFFSET = re.compile(r"(?<![\d:])(?:UTC|GMT)?\s*([+\-−])\s*(\d{1,2})(?::?(\d{2}))?$", re.IGNORECASE)
_NAMED: Final = {
    "z": UTC,
    "utc": UTC,
    "gmt": UTC,
    "北京时间": timezone(timedelta(hours=8)),
    "北京時間": timezone(timedelta(hours=8)),
    "beijing time": timezone(timedelta(hours=8)),
}
_CHINESE = re.compile(r"(\d{4})\s*年\s*(\d{1,2})\s*月\s*(\d{1,2})\s*[日号]?")
_HALF = re.compile(r"(?<![a-z])(AM|PM)\b|(上午|下午|凌晨|早上|中午|晚上)", re.IGNORECASE)
_YEAR_FIRST = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})")
_YEAR_LAST = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})")
_MONTHS: Final = "janfebmaraprmayjunjulaugsepoctnovdec"
_MONTH: Final = (
    r"(?<![a-z])(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)(?![a-z])\.?"
)
_DAY: Final = r"(?<!\d)(\d{1,2})(?:st|nd|rd|th)?"
_DAY_MONTH = re.compile(rf"{_DAY}[\s-]+{_MONTH},?[\s-]+(\d{{4}})(?!\d)", re.IGNORECASE)
_MONTH_DAY = re.compile(rf"{_MONTH}[\s-]+{_DAY},?\s+(\d{{4}})(?!\d)", re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?")


# Beyond these, adding a zone or some days overflows; nobody hands in then.
_YEARS: Final = range(1970, 3000)


class BadTime(ValueError):
    """A time or a zone that cannot be read; the message says what was expected and what came."""


def parse_zone(text: str) -> tzinfo:
    """ "Asia/Shanghai", "UTC+8", "+08:00", "北京时间", "Z". Raises `BadTime`."""
    given = text.strip()
    named = _NAMED.get(given.casefold())
    if named is not None:
        return named
    match = _OFFSET.fullmatch(given)
    if match is not None:
        return _offset(match, text)
    try:
        return ZoneInfo(given)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadTime(
            f"{text!r} is no time zone known here: expected a name like Asia/Shanghai (which needs "
            "the system's tzdata) or an offset like UTC+8"
        ) from None


def _offset(match: re.Match[str], text: str) -> timezone:
    sign, hours, minutes = match.groups()
    offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
    if offset >= timedelta(hours=24):
        raise BadTime(f"{text!r}: no zone is a day away")
    return timezone(offset if sign == "+" else -offset)


def zone_of_header(text: str) -> tzinfo | None:
    """The zone that the head of a column names in brackets: `Time (UTC+8)`, `时间（北京时间）`."""
    for inside in re.findall(r"[(（\[【]([^)）\]】]+)[)）\]】]", text):
        try:
            return parse_zone(inside)
        except BadTime:
            continue
    return None


def day_first(texts: Sequence[str]) -> bool | None:
    """Whether `3/4/2026` means the 3rd of April in these; None when none of them tells."""
    for text in texts:
        match = _YEAR_LAST.search(text)
        if match is not None and int(match[1]) > 12:
            return True
        if match is not None and int(match[2]) > 12:
            return False
    return None


def parse_time(
    text: str, zone: tzinfo, *, day_before_month: bool = False, pattern: str | None = None
) -> datetime:
    """An aware time. zone: of a text that names none; pattern: for `strptime`, when given.

    Raises `BadTime`.
    """
    given = " ".join(text.split())
    if pattern is not None:
        try:
            read = datetime.strptime(given, pattern)
        except ValueError as error:
            raise BadTime(str(error)) from None
        in_years(read)
        return read if read.tzinfo is not None else read.replace(tzinfo=zone)
    try:
        date_text, rest = _date(given, day_before_month)
        read = datetime(*date_text, *_clock(rest), tzinfo=_zone(rest) or zone)
    except ValueError as error:
        got = repr(text[:100]) + ("" if isinstance(error, BadTime) else f" ({error})")
        raise BadTime(
            f"expected a time like 2026-03-20 23:59 or 2026-03-20T23:59+08:00, got {got}"
        ) from None
    return in_years(read)


def in_years(time: datetime) -> datetime:
    """The same time. Raises `BadTime` for one with which nobody can reckon."""
    if time.year not in _YEARS:
        raise BadTime(f"expected a year from {_YEARS[0]} to {_YEARS[-1]}, got {time.year}")
    return time


def _date(text: str, day_before_month: bool) -> tuple[tuple[int, int, int], str]:
    match = _CHINESE.search(text) or _YEAR_FIRST.search(text)
    if match is not None:
        return (int(match[1]), int(match[2]), int(match[3])), text[match.end() :]
    for pattern, day, month in ((_DAY_MONTH, 1, 2), (_MONTH_DAY, 2, 1)):
        if match := pattern.search(text):
            number = 1 + _MONTHS.index(match[month][:3].lower()) // 3
            return (int(match[3]), number, int(match[day])), text[match.end() :]
    match = _YEAR_LAST.search(text)
    if match is None:
        raise BadTime
    first, second, year = int(match[1]), int(match[2]), int(match[3])
    month, day = (second, first) if day_before_month or first > 12 else (first, second)
    return (year, month, day), text[match.end() :]


def _clock(text: str) -> tuple[int, int, int]:
    match = _CLOCK.search(text)
    if match is None:
        if text.strip(" T"):
            raise BadTime
        return 0, 0, 0
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    half = _HALF.search(text)
    if half is not None:
        word = (half[1] or half[2]).upper()
        if (
            word in ("PM", "下午", "晚上", "中午")
            and hour < 12
            and not (word == "中午" and hour > 9)
        ):
            hour += 12
        elif word in ("AM", "上午", "凌晨", "早上") and hour == 12:
            hour = 0
    return hour, minute, second


def _zone(text: str) -> tzinfo | None:
    """The zone behind the clock; Google writes `GMT+8`, ISO `+08:00` or `Z`."""
    match = _CLOCK.search(text)
    after = _HALF.sub("", text[match.end() :] if match else "").strip(" ()（）")
    return parse_zone(after) if after else None
