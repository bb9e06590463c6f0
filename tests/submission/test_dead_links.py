"""The latest link leads nowhere: the one before it counts, unless only the network is to blame."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from grader.submission import fetching
from grader.submission.batch import run_batch
from grader.submission.clone import CloneError
from grader.submission.course import Course, Late
from grader.submission.pages import page_name
from grader.submission.store import Store
from tests.submission.quick import FILE, TOLD, quick
from tests.submission.repositories import repository
from tests.submission.test_batch_memory import ROOT, WHAT, gradebook, silent

__all__ = ["quick"]
GONE = "0" * 40
DEADLINE = datetime(2026, 3, 10, tzinfo=UTC)


class Handed:
    """A sheet of one student, of links to repositories of his; some of which are not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.sheet = folder / "sheet.csv"

    def hand_in(self, *rows: tuple[str, str, int], student: str = "ann") -> None:
        """Add rows: (name of a repository, points that it is worth or "", day of March)."""
        lines = [] if self.sheet.exists() else ["student,link,time"]
        for name, points, day in rows:
            place = self.folder / name
            sha = repository(place, {f"assignments/{FILE}": points}) if points else GONE
            lines.append(f"{student},{place}/tree/{sha},2026-03-{day:02} 12:00")
        with self.sheet.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def run(self, late: Late | None = None, **options: Any) -> dict[str, str]:
        """The student's line of the gradebook."""
        course = Course() if late is None else Course(deadline=DEADLINE, late=late)
        told = dataclasses.replace(TOLD, **options)
        run_batch(self.sheet, WHAT, self.out, told, silent, course)
        return gradebook(self.out)["ann"]

    def happened(self, event: str) -> list[str]:
        """The repositories to which it happened."""
        store = Store(self.out)
        try:
            rows = {number: store.row(number) for number, _, _ in store.events()}
            found = [rows[number].url for number, each, _ in store.events() if each == event]
        finally:
            store.close()
        return [Path(url).name for url in found]


@pytest.fixture
def ann(tmp_path: Path, quick: None) -> Handed:
    return Handed(tmp_path)


def test_the_link_before_a_dead_one_is_graded_and_it_is_said(ann: Handed) -> None:
    ann.hand_in(("first", "2", 1), ("second", "5", 2), ("third", "", 3), ("fourth", "", 4))
    book = ann.run()
    assert (book["status"], book["points"]) == ("graded", "5")
    assert ann.happened("graded") == ["second"]
    page = (ann.out / "students" / page_name("ann")).read_text(encoding="utf-8")
    for words in (
        "the link of line 5 is dead, so that line 3 counts in its place: ",
        "the link of line 4 is dead, so that line 3 counts in its place: ",
    ):
        assert words in book["note"] and words in page
    assert "private, or there is none of this name" in book["note"]


def test_where_all_are_dead_the_latest_is_named(ann: Handed) -> None:
    ann.hand_in(("first", "", 1), ("second", "", 2), ("third", "", 3))
    book = ann.run()
    assert (book["status"], book["grade"]) == ("dead link", "0")
    assert "third" in book["link"] and "none of this name" in book["note"]
    assert "the earlier links are dead, too (line 3, 2)" in book["note"]
    assert ann.run() == book


def test_a_network_that_is_broken_is_no_reason_to_fall_back(
    ann: Handed, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann.hand_in(("first", "2", 1), ("second", "5", 2))
    with monkeypatch.context() as broken:
        unplug(broken, "second")
        book = ann.run()
        assert (book["status"], book["points"]) == ("not fetched", "0")
        assert "cannot be reached" in book["note"] and "tries it again" in book["note"]
        assert not ann.happened("graded")
    book = ann.run()
    assert (book["status"], book["points"], book["note"]) == ("graded", "5", "")
    assert ann.happened("graded") == ["second"]


def test_a_limit_is_no_reason_to_fall_back(ann: Handed, monkeypatch: pytest.MonkeyPatch) -> None:
    ann.hand_in(("first", "2", 1), ("second", "5", 2))
    unplug(monkeypatch, "second", CloneError("larger than the limit", "limit"))
    assert ann.run()["status"] == "not fetched"


def test_nobody_is_graded_twice_and_a_link_that_comes_alive_counts(ann: Handed) -> None:
    ann.hand_in(("first", "2", 1), ("second", "8", 2))
    (ann.folder / "second").rename(ann.folder / "away")
    book = ann.run()
    assert ann.run() == book and ann.happened("graded") == ["first"]
    (ann.folder / "away").rename(ann.folder / "second")
    book = ann.run()
    assert (book["points"], book["note"]) == ("8", "")
    assert ann.happened("graded") == ["first", "second"]


def test_a_network_that_breaks_later_takes_no_grade_away(
    ann: Handed, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann.hand_in(("first", "2", 1), ("second", "", 2))
    book = ann.run()
    unplug(monkeypatch, "")
    assert ann.run() == book and ann.happened("graded") == ["first"]


def test_only_grades_again_what_counts_in_the_place_of_a_dead_link(ann: Handed) -> None:
    ann.hand_in(("first", "2", 1), ("second", "", 2))
    ann.hand_in(("his", "3", 1), ("none", "", 2), student="bob")
    book = ann.run()
    assert ann.run(only=("ann",)) == book
    assert sorted(ann.happened("graded")) == ["first", "first", "his"]
    assert ann.happened("again") == ["first"]
    assert gradebook(ann.out)["bob"]["points"] == "3"


@pytest.mark.parametrize(
    ("prefer", "rows", "status", "points"),
    [
        # The late one is dead: the one in time is not late.
        ("latest", [("first", "4", 9), ("second", "", 10)], "graded", "4"),
        # The one in time is dead, and there is none before it.
        ("in time", [("first", "", 9), ("second", "4", 10)], "late", "4"),
        ("in time", [("first", "6", 8), ("second", "", 9), ("third", "4", 10)], "graded", "6"),
    ],
)
def test_the_row_that_is_graded_decides_whether_it_is_late(
    ann: Handed, prefer: Any, rows: list[tuple[str, str, int]], status: str, points: str
) -> None:
    ann.hand_in(*rows)
    book = ann.run(Late(0.5, 2, timedelta(0), prefer))
    assert (book["status"], book["points"]) == (status, points)


def unplug(patch: pytest.MonkeyPatch, name: str, error: CloneError | None = None) -> None:
    """Break the way to repositories of this name."""
    real = fetching.fetch

    def fetch(link: Any, *arguments: Any, **more: Any) -> Any:
        if link.url.endswith(name):
            raise error or CloneError("the host cannot be reached, or broke off", "unreachable")
        return real(link, *arguments, **more)

    patch.setattr(fetching, "fetch", fetch)


def test_killed_again_and_again_it_settles_the_same(tmp_path: Path) -> None:
    students = Handed(tmp_path)
    names = [f"s{n}" for n in range(8)]
    for name in names:
        rows = (f"{name}-first", "slow", 1), (f"{name}-gone", "", 2)
        students.hand_in(*rows, student=name)
    command = [sys.executable, "-m", "tests.submission.quick", str(students.sheet), *WHAT]
    command += ["--out", str(students.out), "--jobs", "2"]
    command += ["--unsandboxed", "--allow-local", "--no-throughput"]
    dice = random.Random(5)
    for kills in range(5):
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        if kills < 4:
            for _ in range(dice.randint(2, 18)):
                process.stdout.readline()
            time.sleep(dice.random() * 0.1)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        else:
            words = process.communicate(timeout=300)[0]
            assert process.returncode == 0, words
    assert sorted(students.happened("graded")) == [f"{name}-first" for name in names]
    book = gradebook(students.out)
    assert {row["points"] for row in book.values()} == {"3"} and set(book) == set(names)
    assert all("counts in its place" in row["note"] for row in book.values())
