"""Which of a student's links counts."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from grader import tasks
from grader.checks.settings import CannotRun
from grader.submission.choose import Choice, assignments_of, choose
from grader.submission.course import Course, Late
from grader.submission.grades import TRIED_AGAIN, grade_all
from grader.submission.links import parse_link
from grader.submission.sheet import read_sheet
from grader.submission.store import Row

ZONE = timezone(timedelta(hours=8))
DEADLINE = datetime(2026, 3, 10, tzinfo=ZONE)
LATE = Late(0.5, 1.0, timedelta(minutes=5))


def choice(folder: Path, text: str, course: Course, *keys: str, strict: bool = False) -> Choice:
    path = folder / "sheet.csv"
    path.write_text(text, encoding="utf-8")
    return choose(read_sheet(path, zone=ZONE), course, keys or ("a1",), strict=strict)


def link(letter: str) -> str:
    return f"https://github.com/ann/x/tree/{letter * 40}"


def chosen(found: Choice) -> dict[str, str]:
    return {each.student: each.link.ref[0] for each in found.submissions}


def test_without_a_deadline_the_last_valid_link_counts(tmp_path: Path) -> None:
    text = f"student,link\nann,{link('a')}\nann,{link('b')}\nann,oops\nbob,x\nbob,y\n"
    found = choice(tmp_path, text, Course())
    assert chosen(found) == {"ann": "b"}
    assert "line 4 does not count" in found.submissions[0].warnings[0]
    assert "'y'" in found.without["bob"].reason
    assert [each.entry.line for each in found.unread] == [4, 5, 6]


def test_times_order_links_and_not_the_sheet(tmp_path: Path) -> None:
    text = f"student,link,time\nann,{link('a')},2026-03-02\nann,{link('b')},2026-03-01\n"
    assert chosen(choice(tmp_path, text, Course())) == {"ann": "a"}


def test_the_latest_before_the_deadline_counts(tmp_path: Path) -> None:
    text = (
        "student,link,time\n"
        f"ann,{link('a')},2026-03-08 12:00\n"
        f"ann,{link('b')},2026-03-10 00:04\n"  # within the grace
        f"ann,{link('c')},2026-03-10 00:06\n"
        f"bob,{link('d')},2026-03-09T16:30Z\n"  # half an hour late, in the course's zone
        f"cat,{link('e')},2026-03-15 00:00\n"
    )
    course = Course(deadline=DEADLINE, late=LATE)
    found = choice(tmp_path, text, course)
    assert chosen(found) == {"ann": "b", "bob": "d", "cat": "e"}
    ann, bob, cat = found.submissions
    assert ann.late == {"a1": timedelta(0)} and "after the deadline (line 4)" in ann.warnings[0]
    assert bob.late == {"a1": timedelta(minutes=30)}
    assert course.late.factor(cat.late["a1"]) == 0.0


def test_the_latest_that_still_counts_when_the_course_says_so(tmp_path: Path) -> None:
    text = (
        f"student,link,time\nann,{link('a')},2026-03-08\nann,{link('b')},2026-03-10 10:00\n"
        f"ann,{link('c')},2026-03-12\n"
    )
    late = Late(0.5, 1.0, prefer="latest")
    assert chosen(choice(tmp_path, text, Course(deadline=DEADLINE, late=late))) == {"ann": "b"}


def test_assignments_with_deadlines_of_their_own(tmp_path: Path) -> None:
    text = f"student,link,time\nann,{link('a')},2026-03-08\nann,{link('b')},2026-03-15\n"
    course = Course(deadlines={"a1": DEADLINE, "a2": DEADLINE + timedelta(days=10)})
    first, second = choice(tmp_path, text, course, "a1", "a2").submissions
    assert (first.link.ref[0], list(first.late)) == ("a", ["a1"])
    assert (second.link.ref[0], list(second.late)) == ("b", ["a2"])


def test_a_column_of_assignments(tmp_path: Path) -> None:
    text = f"姓名,作业,链接\n张三,a1,{link('a')}\n张三,作业2,{link('b')}\n张三,期末,{link('c')}\n"
    found = choice(tmp_path, text, Course(), "a1", "a2")
    assert [(s.link.ref[0], list(s.late)) for s in found.submissions] == [
        ("a", ["a1"]),
        ("b", ["a2"]),
    ]
    assert "'期末' is no assignment" in found.unread[0].reason


def test_a_branch_counts_with_a_warning_unless_strict(tmp_path: Path) -> None:
    text = "student,link\nann,https://github.com/ann/x/tree/main\n"
    assert "can change" in choice(tmp_path, text, Course()).submissions[0].warnings[0]
    strict = choice(tmp_path, text, Course(), strict=True)
    assert not strict.submissions and "--strict" in strict.without["ann"].reason


def test_a_deadline_needs_times(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="no column of times"):
        choice(tmp_path, f"student,link\nann,{link('a')}\n", Course(deadline=DEADLINE))


def test_a_row_whose_time_cannot_be_read_does_not_count(tmp_path: Path) -> None:
    text = f"student,link,time\nann,{link('a')},2026-03-08\nann,{link('b')},?\n"
    found = choice(tmp_path, text, Course(deadline=DEADLINE))
    assert chosen(found) == {"ann": "a"} and "its time cannot be read" in found.unread[0].reason


@pytest.mark.parametrize(
    ("cell", "keys", "unknown"),
    [
        ("a0, a1", ["a0", "a1"], []),
        ("A1；a2", ["a1", "a2"], []),
        ("2026 spring a1", ["a1"], []),
        ("95", [], ["95"]),
        ("2", ["a2"], []),
        ("1、2", ["a1", "a2"], []),
        ("作业2", ["a2"], []),
        ("第1次作业", ["a1"], []),
        ("第一次作业", ["a1"], []),
        ("第十次作业", [], ["第10"]),
        ("第十二次作业", [], ["第12"]),
        ("第二十次作业", [], ["第20"]),
        ("作业三", ["a3"], []),
        ("作业 三：Transformer", ["a3"], []),
        ("作業〇", ["a0"], []),
        ("零", ["a0"], []),
        ("一、二", ["a1", "a2"], []),
        ("第一、二次作业", ["a1", "a2"], []),
        ("第1，2和3次", ["a1", "a2", "a3"], []),
        ("作业一和作业二", ["a1", "a2"], []),
        ("第一次作业（共三题）", ["a1"], []),
        ("统一提交", [], []),
        ("作业一起提交", [], []),
        ("Assignment 1 / hw2", ["a1", "a2"], []),
        ("a1_collectives", ["a1"], []),
        ("a１", ["a1"], []),
        ("a1, a99", ["a1"], ["a99"]),
        ("期末", [], []),
    ],
)
def test_assignments_of_a_cell(cell: str, keys: list[str], unknown: list[str]) -> None:
    assert assignments_of(cell) == (keys, unknown)


def test_a_row_for_several_assignments(tmp_path: Path) -> None:
    text = (
        f'student,assignment,link\nann,"a0, a1",{link("a")}\nbob,95,{link("b")}\n'
        f'cat,"a1, a99",{link("c")}\n'
    )
    found = choice(tmp_path, text, Course(), "a0", "a1")
    assert [(s.student, list(s.late)) for s in found.submissions] == [
        ("ann", ["a0", "a1"]),
        ("cat", ["a1"]),
    ]
    assert [(u.entry.student, u.reason[:22]) for u in found.unread] == [
        ("bob", "'95' is no assignment:"),
        ("cat", "'a99' is no assignment"),
    ]


def test_people_that_differ_in_case_only_are_told_of_each_other(tmp_path: Path) -> None:
    text = (
        f"student,assignment,link\nann,a1,{link('a')}\nAnn,a1,what?\nANN,a2,{link('b')}\n"
        f"bob,a1,{link('c')}\n"
    )
    found = choice(tmp_path, text, Course())
    books = grade_all([], found, Course(), [tasks.find("a1.broadcast")])
    notes = {grade.student: "; ".join(grade.notes) for grade in books}
    first, second = (f"'ann' and '{other}' differ only in case" for other in ("Ann", "ANN"))
    assert first in notes["ann"] and second in notes["ann"]
    assert first in notes["Ann"] and "got 'what?'" in notes["Ann"]
    assert second in notes["ANN"] and "differ" not in notes["bob"]


def test_a_row_without_a_student_is_listed_and_nobody_of_the_sheet(tmp_path: Path) -> None:
    found = choice(tmp_path, f"student,link\nann,{link('a')}\n,{link('b')}\n", Course())
    assert chosen(found) == {"ann": "a"} and list(found.names) == ["ann"]
    assert [(u.entry.line, u.reason) for u in found.unread] == [(3, "nobody is named")]


def test_a_dead_link_gives_way_to_the_one_before_it_of_its_assignment(tmp_path: Path) -> None:
    text = (
        f"student,link,assignment\nann,{link('a')},a1\nann,{link('b')},\nbob,{link('c')},\n"
        f"bob,{link('d')},a2\n"
    )
    path = tmp_path / "sheet.csv"
    path.write_text(text, encoding="utf-8")
    sheet, keys = read_sheet(path, zone=ZONE), ("a1", "a2")
    dead = {("ann", parse_link(link("b"))): "no such commit"}
    found = choose(sheet, Course(), keys, dead=dead)
    assert [(s.student, s.link.ref[0], list(s.late)) for s in found.submissions] == [
        ("ann", "a", ["a1"]),
        ("ann", "b", ["a2"]),  # there is no other
        ("bob", "c", ["a1"]),
        ("bob", "d", ["a2"]),
    ]
    told = "the link of line 3 is dead, so that line 2 counts in its place: no such commit"
    assert [s.warnings for s in found.submissions] == [[told], [], [], []]


def test_a_network_that_is_broken_is_no_dead_link(tmp_path: Path) -> None:
    found = choice(tmp_path, f"student,link\nann,{link('a')}\nbob,{link('b')}\n", Course())
    statuses = dict(zip(("ann", "bob"), ("missing", "not fetched"), strict=True))
    rows = [
        Row(
            id=n, student=each.student, name="", pasted="", line=each.line, url="", ref="",
            assignments=("a1",), submitted=None, late=each.late, warnings=[], state="dead",
            status=statuses[each.student], note="why",
        )
        for n, each in enumerate(found.submissions)
    ]  # fmt: skip
    ann, bob = grade_all(rows, found, Course(), [tasks.find("a1.broadcast")])
    assert (ann.status, ann.notes) == ("dead link", ["why"])
    assert (bob.status, bob.notes) == ("not fetched", ["why", TRIED_AGAIN])
