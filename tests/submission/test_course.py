"""`course.toml`, times, and what lateness costs."""

from __future__ import annotations

import textwrap
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from grader.checks.settings import CannotRun
from grader.cli import main
from grader.submission.course import Late, load_course
from grader.submission.times import BadTime, parse_time, parse_zone

BEIJING = timezone(timedelta(hours=8))
TOML = """
name = "分布式训练"
timezone = "UTC+8"
deadline = 2026-03-20T23:59:00
hosts = ["github.com", "git.example.org"]
[mirrors]
"Gitee.com" = "https://mirror/"
[late]
per_day = 0.1
days = 3
grace_minutes = 10
[assignments]
a1 = 2
a2_ring_all_reduce = { weight = 3, deadline = 2026-04-01 }
[columns]
student = "学号"
[limits]
seconds = 900
"""


def course(folder: Path, text: str) -> Path:
    path = folder / "course.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_course_is_read(tmp_path: Path) -> None:
    read = load_course(course(tmp_path, TOML))
    assert read.deadline_of("a1") == datetime(2026, 3, 20, 23, 59, tzinfo=BEIJING)
    # A bare date ends with its day.
    assert read.deadline_of("a2") == datetime(2026, 4, 2, tzinfo=BEIJING)
    assert read.hosts == ("github.com", "git.example.org", "gitee.com")
    assert read.weights == {"a1": 2.0, "a2": 3.0} and read.seconds == 900
    assert read.columns.student == "学号" and read.late.grace == timedelta(minutes=10)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = ", "course.toml: "),
        ("weights = 1", "weights is unknown: expected one of name, timezone"),
        ("[late]\nper_week = 1", "late.per_week is unknown"),
        ("[late]\nper_day = 2", "per_day: expected a number from 0 to 1, got 2"),
        ("[late]\nprefer = 'best'", "expected 'in time' or 'latest', got 'best'"),
        ("[assignments]\na77 = 1", "assignments.a77: there is no such assignment"),
        ("timezone = 'Mars'", "'Mars' is no time zone known here"),
        ("deadline = 'soon'", "expected a time like .*, got 'soon'"),
        ("deadline = 9999-12-31", "expected a year from 1970 to 2999, got 9999"),
        ("deadline = '9999-12-31'", "expected a year from 1970"),
        ("deadline = 9999-12-31T23:59:59Z", "expected a year"),
        ("[late]\ndays = 1e9", "days: expected a number from 0 to 3650"),
        ("[late]\ngrace_minutes = 1e9", "grace_minutes: expected a number from 0 to"),
        (f"x = {'[' * 5000}{']' * 5000}", "course.toml: "),
        ("[mirrors]\n'gitee.com' = 'https://mirror'", "mirrors.gitee.com: expected .* a / at"),
        ("[mirrors]\n'https://gitee.com' = 'https://mirror/'", "mirrors: expected the name of"),
        ("hosts = ['https://github.com/']", "hosts: expected the name .*, got 'https://github"),
        ("[columns]\nstudent = 1", "student: expected str, got 1"),
        ("[limits]\nseconds = 1e9", "seconds: expected a number from 0 to 1e"),
        ("hosts = [1]", "hosts: expected the name of a host like github.com, got 1"),
        ("[assignments]\na1 = 1\na1_collectives = 2", "assignments.a1_collectives: a1 stands here"),
        ("[assignments]\na1 = 0\na2 = 0", "assignments: every weight is 0"),
        ("hosts = 'github.com'", "hosts: expected list, got 'github.com'"),
    ],
)
def test_what_makes_no_sense_names_its_key(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(CannotRun, match=words):
        load_course(course(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-04 14:05:06",
        "2026/3/4 14:05:06",
        "2026.03.04 14:05:06",
        "2026年3月4日 14:05:06",
        "2026年3月4日下午2:05:06",
        "2026/3/4 下午 2:05:06",
        "3/4/2026 14:05:06",
        "3/4/2026 2:05:06 PM",
        "2026-03-04T14:05:06.789",
        "2026-03-04T06:05:06Z",
        "2026-03-04T07:05:06+01:00",
        "2026/03/04 2:05:06 PM GMT+8",
        "2026-03-04 06:05:06 UTC",
    ],
)
def test_times_as_forms_write_them(text: str) -> None:
    assert parse_time(text, BEIJING) == datetime(2026, 3, 4, 14, 5, 6, tzinfo=BEIJING)


def test_midnight_and_noon() -> None:
    for text, hour in (("12:10 AM", 0), ("12:10 PM", 12), ("上午 12:10", 0), ("中午 12:10", 12)):
        assert parse_time(f"2026-03-04 {text}", UTC).hour == hour, text


@pytest.mark.parametrize("text", ["", "noon", "2026-13-01 1:00", "2026-03-04 25:00", "2026-3-4 x"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadTime, match="expected a time like"):
        parse_time(text, UTC)


def test_zones() -> None:
    assert parse_zone("+08:00") == parse_zone("UTC+8") == parse_zone("北京时间") == BEIJING
    assert parse_zone("UTC-3:30").utcoffset(None) == -timedelta(hours=3, minutes=30)
    with pytest.raises(BadTime, match="a day away"):
        parse_zone("UTC+25")


def test_what_lateness_leaves() -> None:
    late = Late(0.25, 3, timedelta(minutes=10))
    hours = (0, 1 / 6, 1 / 5, 24, 24.1, 72, 72.1)
    factors = [late.factor(timedelta(hours=h)) for h in hours]
    assert factors == [1.0, 1.0, 0.75, 0.75, 0.5, 0.25, 0.0]
    assert Late().factor(timedelta(seconds=1)) == 0.0


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_example_of_the_readme_is_a_course(page: str, tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / page).read_text(encoding="utf-8")
    block = text[text.index("    name = ") :]
    lines = block.splitlines()
    end = next(n for n, line in enumerate(lines) if line and not line.startswith("    "))
    read = load_course(course(tmp_path, textwrap.dedent("\n".join(lines[:end]))))
    assert read.weights == {"a1": 1.0, "a2": 2.0} and read.deadlines.keys() == {"a2"}
    assert read.late.per_day == 0.1 and read.seconds == 1800 and read.mirrors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--seconds", "-5"], "--seconds"),
        (["--seed", "99999999999999999999"], "--seed"),
        (["--seed", "-1"], "--seed"),
        (["--deadline", "9999-12-31"], "expected a year from 1970 to 2999, got 9999"),
    ],
)
def test_options_out_of_bounds_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    sheet = tmp_path / "sheet.csv"
    sheet.write_text("student,time,link\nann,2026-01-01,x\n", encoding="utf-8")
    out = tmp_path / "out"
    assert main(["batch", str(sheet), "a1", f"--out={out}", "--unsandboxed", *options]) == 2
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said and said.count("\n") == 1
    assert not out.exists()
