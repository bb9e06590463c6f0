"""The gradebook and the pages: what students wrote stays text in them."""

from __future__ import annotations

import csv
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest

from grader import tasks
from grader.submission.choose import Choice, Unread
from grader.submission.course import Course, Late
from grader.submission.gradebook import write_gradebook, write_unread
from grader.submission.grades import Status, StudentGrade, grade_all, words
from grader.submission.pages import (
    leaderboard,
    page_name,
    write_leaderboard,
    write_overview,
    write_student,
    write_suspicions,
)
from grader.submission.sheet import Entry
from grader.submission.spreadsheets import harmless, read_csv
from grader.submission.store import Row
from grader.submission.suspicions import Suspicion

KINDS = ("same commit", "alike", "unusual", "worlds", "history")
EVIL = '"><script src="https://evil.org/x.js"></script>'


def check(points: float, most: float, **metrics: Any) -> dict[str, Any]:
    return {
        "check": "keeps up", "status": "passed", "points": points, "max_points": most,
        "message": EVIL, "metrics": metrics,
    }  # fmt: skip


def row(student: str, late: dict[str, timedelta], points: dict[str, float], **more: Any) -> Row:
    listed = [
        {
            "task": task, "status": "partial", "points": earned, "max_points": 10.0,
            "skipped_points": 0.0, "seconds": 1.0, "checks": [check(earned, 10.0, **more)],
        }
        for task, earned in points.items()
    ]  # fmt: skip
    return Row(
        id=1, student=student, name="", pasted=EVIL, line=2, url="", ref="", assignments=("a1",),
        submitted=None, late=late, warnings=[], state="done", sha="0" * 40, status="graded",
        document={"points": 0.0, "max_points": 0.0, "tasks": listed},
    )  # fmt: skip


def grades(rows: list[Row], course: Course | None = None) -> list[StudentGrade]:
    names = {each.student: "张三" for each in rows}
    selected = [tasks.find("a1.broadcast"), tasks.find("a2.ring_all_reduce")]
    return grade_all(rows, Choice([], {}, [], names), course or Course(), selected)


def test_weights_and_lateness_make_the_grade() -> None:
    course = Course(weights={"a1": 1, "a2": 3}, late=Late(0.5, 2))
    late = {"a1": timedelta(0), "a2": timedelta(hours=1)}
    (found,) = grades([row("ann", late, {"a1.broadcast": 10, "a2.ring_all_reduce": 8})], course)
    assert found.grade == pytest.approx(100 * (1 * 1.0 + 3 * 0.8 * 0.5) / 4)
    assert (found.status, found.points, found.max_points) == ("late", 18, 20)
    (half,) = grades([row("ann", {"a1": timedelta(0)}, {"a1.broadcast": 10})], course)
    assert half.grade == 25.0


def test_a_cell_is_never_a_formula(tmp_path: Path) -> None:
    for text in ("=1+1", "+1", "-1", "@x", "\t=1", " =1", "＝1", "\r=1"):
        assert harmless(text).startswith("'"), text
    for text in ("ann;=1+1;", "a; =1", "a\t=1", "a\n=1", "a\r\n+1", 'a;"@x', "a;\x1b=1", "a；＝1"):
        assert re.search(r"""(?:^|[;；])[\s"]*[=+@＝]|a [=+]""", harmless(text)) is None, text
        assert not set(harmless(text)) & set("\t\r\n\x1b")
    assert harmless("a=1; b-2 - c") == "a=1; b-2 - c"
    assert harmless("Ann\r\nLee") == "Ann Lee" and harmless("张三") == "张三"
    found = StudentGrade("=1+1", "@x", "bad link", notes=['=HYPERLINK("https://evil")'])
    write_gradebook(tmp_path / "gradebook.csv", [found], [])
    data = (tmp_path / "gradebook.csv").read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")
    (read,) = csv.DictReader(data.decode("utf-8-sig").splitlines())
    assert (read["student"], read["name"]) == ("'=1+1", "'@x")
    assert read["note"].startswith("'=HYPERLINK")


def test_chinese_names_survive_a_spreadsheet(tmp_path: Path) -> None:
    write_gradebook(tmp_path / "g.csv", [StudentGrade("007", "张三，李四", "graded")], [])
    text = (tmp_path / "g.csv").read_bytes().decode("utf-8-sig")
    assert text.splitlines()[1].startswith('007,"张三，李四"') or ",张三，李四," in text


def test_chinese_files_read_back_as_the_english_ones(tmp_path: Path) -> None:
    late = {"a1": timedelta(hours=25)}
    course = Course(late=Late(0.5, 2))
    (ann,) = grades([row("ann", late, {"a1.broadcast": 10})], course)
    ann.notes = ["it names a branch or tag, not a commit: what it leads to can change", "x"]
    others = [StudentGrade(each, "", each) for each in get_args(Status)]
    selected = [tasks.find("a1.broadcast"), tasks.find("a2.ring_all_reduce")]
    unread = [Unread(Entry("张三", "oops", 3), "nobody is named")]
    found = [Suspicion(kind, ("ann", "bob"), "x.py", "y") for kind in KINDS]
    read = {}
    for language in ("en", "zh"):
        folder = tmp_path / language
        write_gradebook(folder / "gradebook.csv", [ann, *others], selected, language)
        write_unread(folder / "unread.csv", unread, language)
        write_suspicions(folder, found, language)
        board = grades([row("ann", {}, {"a1.broadcast": 5}, ratio=0.9, baseline="it")])
        write_leaderboard(folder, board, language)
        read[language] = {path.name: read_csv(path) for path in sorted(folder.glob("*.csv"))}
        for path in folder.glob("*.csv"):
            assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    assert len(read["en"]) == 4
    for name, lines in read["en"].items():
        chinese = read["zh"][name]
        assert [list(line) for line in chinese] == [list(line) for line in lines], name
        for key in lines[0].keys() - {"note", "reason", "what", "where", "check", "a1 late"}:
            assert [line[key] for line in chinese] == [line[key] for line in lines], (name, key)
    with (tmp_path / "en/gradebook.csv").open(encoding="utf-8-sig", newline="") as file:
        assert list(csv.DictReader(file)) == read["en"]["gradebook.csv"]
    head, first, *_ = (tmp_path / "zh/gradebook.csv").read_text("utf-8-sig").splitlines()
    assert head == (
        "学生,姓名,状态,成绩,得分,满分,a1,a2,a1 迟交,a2 迟交,commit,链接,提交时间,"
        "a1.broadcast,a2.ring_all_reduce,a1.broadcast 状态,a2.ring_all_reduce 状态,备注"
    )
    assert ",1 天 1 小时," in first and ",部分通过," in first and "指向的内容可能会变；x" in first


def test_pages_need_no_network_and_run_nothing(tmp_path: Path) -> None:
    ratio = {"ratio": 0.9, "baseline": EVIL}
    found = grades([row(EVIL, {"a1": timedelta(hours=3)}, {"a1.broadcast": 5}, **ratio)])
    found[0].notes.append(EVIL)
    selected = [tasks.find("a1.broadcast")]
    unread = [Unread(Entry(EVIL, EVIL, 3), EVIL)]
    write_student(tmp_path, found[0])
    write_overview(tmp_path, EVIL, found, unread, selected)
    write_leaderboard(tmp_path, found)
    write_suspicions(tmp_path, [Suspicion("alike", (EVIL, EVIL), EVIL, EVIL)])
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) == 4
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert EVIL not in text and "<script" not in text, page
        assert "evil.org" in text  # what he wrote is shown, as text
        addresses = re.findall(r'(?:href|src|url)\s*[=(]\s*"?([^">)]*)', text)
        assert all(not re.match(r"(\w+:)?//", address) for address in addresses), page
        assert "default-src 'none'" in text


def test_page_names_stay_in_their_folder_and_differ() -> None:
    names = [page_name(s) for s in ("../../etc/passwd", "a/b", "a_b", "张三", "", ".", "x" * 300)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[\w-]+\.html", name) and len(name) < 60 for name in names)


def test_the_leaderboard_ranks_what_earned_points() -> None:
    timed = [
        row(name, {"a1": timedelta(0)}, {"a1.broadcast": points}, ratio=ratio, baseline="it")
        for name, points, ratio in (("slow", 5, 0.5), ("fast", 10, 1.5), ("wrong", 0, 99.0))
    ]
    ((title, baseline, places),) = leaderboard(grades(timed))
    assert (title, baseline) == ("a1.broadcast: keeps up", "it")
    assert [place.student for place in places] == ["fast", "slow"]


def test_lateness_in_words() -> None:
    found = [words(timedelta(minutes=m)) for m in (0, 0.2, 12, 250, 1440, 3060)]
    assert found == ["0 min", "1 min", "12 min", "4 h 10 min", "1 day", "2 days 3 h"]
