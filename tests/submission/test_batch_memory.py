"""What a batch remembers: killed, repeated, changed, it loses nothing and grades nobody twice."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from grader.checks.settings import CannotRun
from grader.cli import main
from grader.submission import batch, confinement
from grader.submission.batch import BatchOptions, run_batch
from grader.submission.course import Course
from grader.submission.spreadsheets import read_csv
from grader.submission.store import Store
from grader.submission.work import add_throughput
from tests.submission.quick import TOLD, quick, sheet_of
from tests.submission.repositories import git

__all__ = ["quick"]
ROOT = Path(__file__).resolve().parents[2]
WHAT = ["a1.broadcast"]


def gradebook(out: Path) -> dict[str, dict[str, str]]:
    return {row["student"]: row for row in read_csv(out / "gradebook.csv")}


def events(out: Path) -> Counter[tuple[str, str]]:
    """How often what happened to whom."""
    store = Store(out)
    try:
        names = {row.id: row.student for row in store.rows()}
        return Counter((names[number], event) for number, event, _ in store.events())
    finally:
        store.close()


def silent(line: str) -> None:
    """Say nothing."""


def test_nothing_is_graded_without_a_sandbox_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "missing", lambda: "bubblewrap is not installed")
    with pytest.raises(CannotRun, match=r"bubblewrap is not installed.*--unsandboxed"):
        run_batch(tmp_path / "sheet.csv", [], tmp_path / "out", BatchOptions())
    assert list(tmp_path.iterdir()) == []


def test_statuses_of_all_kinds(tmp_path: Path, quick: None) -> None:
    sheet = sheet_of(tmp_path, {"full": "10", "half": "5", "lost": "error", "hung": "timeout"})
    lines = f"\ngone,{tmp_path}/full/tree/{'0' * 40}\nbad,what?\nbranch,{tmp_path}/half/tree/main"
    sheet.write_text(sheet.read_text() + lines)
    said: list[str] = []
    run_batch(sheet, WHAT, tmp_path / "out", TOLD, said.append)
    book = gradebook(tmp_path / "out")
    assert {student: row["status"] for student, row in book.items()} == {
        "full": "graded", "half": "graded", "lost": "not graded", "hung": "stopped",
        "gone": "dead link", "bad": "bad link", "branch": "graded",
    }  # fmt: skip
    assert [book[name]["grade"] for name in ("full", "half", "lost", "branch")] == [
        "100", "50", "0", "50",
    ]  # fmt: skip
    assert "it is a error" in book["lost"]["note"] and "can change" in book["branch"]["note"]
    assert "line 7 (bad) does not count" in "\n".join(said)
    assert any("6/6 fetched" in line for line in said)
    assert (tmp_path / "out/index.html").is_file() and (tmp_path / "out/unread.csv").is_file()
    assert len(list((tmp_path / "out/students").iterdir())) == 7


def test_a_second_run_grades_nobody_again_and_only_what_is_new(tmp_path: Path, quick: None) -> None:
    sheet = sheet_of(tmp_path, {"ann": "10", "bob": "5"})
    out = tmp_path / "out"
    run_batch(sheet, WHAT, out, TOLD, silent)
    first = (out / "gradebook.csv").read_bytes()
    run_batch(sheet, WHAT, out, TOLD, silent)
    assert (out / "gradebook.csv").read_bytes() == first
    new = sheet_of(tmp_path, {"cat": "2"}, "new.csv").read_text().splitlines()[1]
    sheet.write_text(sheet.read_text() + "\n" + new)
    run_batch(sheet, WHAT, out, TOLD, silent)
    graded = {who: count for (who, what), count in events(out).items() if what == "graded"}
    assert graded == {"ann": 1, "bob": 1, "cat": 1} and gradebook(out)["cat"]["points"] == "2"


def test_a_dead_link_is_tried_again(tmp_path: Path, quick: None) -> None:
    sheet = sheet_of(tmp_path, {"ann": "10"})
    (tmp_path / "ann").rename(tmp_path / "away")
    run_batch(sheet, WHAT, tmp_path / "out", TOLD, silent)
    assert gradebook(tmp_path / "out")["ann"]["status"] == "dead link"
    (tmp_path / "away").rename(tmp_path / "ann")
    run_batch(sheet, WHAT, tmp_path / "out", TOLD, silent)
    assert gradebook(tmp_path / "out")["ann"]["status"] == "graded"


def test_one_student_is_graded_again_from_the_same_files_with_the_same_seed(
    tmp_path: Path, quick: None
) -> None:
    sheet = sheet_of(tmp_path, {"ann": "10", "bob": "5"})
    out = tmp_path / "out"
    options = dataclasses.replace(TOLD, seed=None)
    run_batch(sheet, WHAT, out, options, silent)
    first = (out / "gradebook.csv").read_bytes()
    git(tmp_path / "ann", "checkout", "--quiet", "--orphan", "new")
    (tmp_path / "ann").rename(tmp_path / "gone")
    run_batch(sheet, WHAT, out, dataclasses.replace(options, only=("ann",)), silent)
    assert (out / "gradebook.csv").read_bytes() == first
    store = Store(out)
    ann, bob = sorted(store.rows(), key=lambda row: row.line)
    store.close()
    assert ann.seed == bob.seed > 0 and ann.document is not None
    assert ann.document["seed"] == ann.seed and ann.kit == batch.kit_name()
    assert events(out)["ann", "graded"] == 2 and events(out)["bob", "graded"] == 1
    with pytest.raises(CannotRun, match="--only eve: nobody of that name"):
        run_batch(sheet, WHAT, out, dataclasses.replace(options, only=("eve",)), silent)


def test_another_kit_is_refused_unless_told(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheet = sheet_of(tmp_path, {"ann": "10"})
    out = tmp_path / "out"
    run_batch(sheet, WHAT, out, TOLD, silent)
    monkeypatch.setattr(batch, "kit_name", lambda: "0.9.9+other")
    with pytest.raises(CannotRun, match=r"was graded with kit .* this one is 0\.9\.9\+other"):
        run_batch(sheet, WHAT, out, dataclasses.replace(TOLD, only=("ann",)), silent)
    with pytest.raises(CannotRun, match="was graded with kit"):
        run_batch(sheet, WHAT, out, TOLD, silent)
    again = dataclasses.replace(TOLD, only=("ann",), any_kit=True)
    run_batch(sheet, WHAT, out, again, silent)
    assert events(out)["ann", "graded"] == 2


def test_a_folder_of_another_batch_is_refused(tmp_path: Path, quick: None) -> None:
    sheet = sheet_of(tmp_path, {"ann": "10"})
    out = tmp_path / "out"
    run_batch(sheet, WHAT, out, TOLD, silent)
    with pytest.raises(CannotRun, match="a batch of other tasks or options"):
        run_batch(sheet, ["a1.reduce"], out, TOLD, silent)
    with pytest.raises(CannotRun, match="begun with seed 7, not 8"):
        run_batch(sheet, WHAT, out, dataclasses.replace(TOLD, seed=8), silent)
    (tmp_path / "else").mkdir()
    (tmp_path / "else/batch.sqlite").write_text("no database at all, but longer than a header" * 9)
    with pytest.raises(CannotRun, match="cannot be read"):
        run_batch(sheet, WHAT, tmp_path / "else", TOLD, silent)


def test_two_batches_never_share_a_folder(tmp_path: Path, quick: None) -> None:
    sheet = sheet_of(tmp_path, {"ann": "10"})
    first = Store(tmp_path / "out")
    with pytest.raises(CannotRun, match="another batch is running"):
        run_batch(sheet, WHAT, tmp_path / "out", TOLD, silent)
    first.close()
    run_batch(sheet, WHAT, tmp_path / "out", TOLD, silent)


def test_throughput_comes_after_and_alone(tmp_path: Path, quick: None) -> None:
    sheet = sheet_of(tmp_path, {"ann": "8", "none": "0"})
    out = tmp_path / "out"
    run_batch(sheet, WHAT, out, dataclasses.replace(TOLD, throughput=True, jobs=2), silent)
    book = gradebook(out)
    # Two more points for speed; what earned nothing is not timed, and loses the chance.
    assert (book["ann"]["points"], book["ann"]["max_points"]) == ("10", "12")
    assert (book["none"]["points"], book["none"]["max_points"]) == ("0", "12")
    assert "ann,1.25" in (out / "leaderboard.csv").read_text(encoding="utf-8-sig")
    assert "none" not in (out / "leaderboard.csv").read_text(encoding="utf-8-sig")
    order = [event for _, event, _ in _all_events(out) if event in ("graded", "timed")]
    assert order == ["graded", "graded", "timed", "timed"]


def _all_events(out: Path) -> list[tuple[int, str, str]]:
    store = Store(out)
    try:
        return store.events()
    finally:
        store.close()


def test_a_timed_check_that_was_cut_off_earns_nothing_and_says_why() -> None:
    left = {
        "check": "is fast", "status": "skipped", "points": 0.0, "max_points": 2.0,
        "message": "throughput is not measured with --no-throughput", "metrics": {},
    }  # fmt: skip
    task = {
        "task": "a1.x", "status": "passed", "points": 3.0, "max_points": 3.0, "seconds": 1.0,
        "skipped_points": 2.0,
        "checks": [left | {"check": "a", "status": "passed", "points": 3.0, "max_points": 3.0}],
    }  # fmt: skip
    task["checks"].append(left)  # type: ignore[attr-defined]
    total = {"points": 3.0, "max_points": 3.0, "skipped_points": 2.0, "seconds": 1.0}
    found = add_throughput({"tasks": [task], **total}, None, "stopped: too slow")
    assert (found["points"], found["max_points"], found["skipped_points"]) == (3.0, 5.0, 0.0)
    assert found["tasks"][0]["status"] == "partial"
    assert "stopped: too slow" in found["tasks"][0]["checks"][1]["message"]


def test_deadlines_of_assignments_make_submissions_of_their_own(
    tmp_path: Path, quick: None
) -> None:
    sheet = sheet_of(tmp_path, {"ann": "10"})
    sheet.write_text(sheet.read_text().replace("student,link", "student,link,assignment") + ",a1")
    course = Course(weights={"a1": 1.0, "a2": 1.0})
    (found,) = run_batch(sheet, [], tmp_path / "out", TOLD, silent, course)
    assert found.grade == pytest.approx(100 * 120 / 100 / 2) and list(found.assignments) == ["a1"]


def test_killed_again_and_again_it_ends_right(tmp_path: Path) -> None:
    contents = {f"s{n:02}": "slow" for n in range(16)}
    sheet, out = sheet_of(tmp_path, contents), tmp_path / "out"
    command = [sys.executable, "-m", "tests.submission.quick", str(sheet), *WHAT, "--out", str(out)]
    command += ["--unsandboxed", "--allow-local", "--no-throughput", "--jobs", "2"]
    dice = random.Random(4)
    kills = 0
    while True:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        if kills < 5:
            # The first lines may come late on a busy machine: kill some way into its work.
            for _ in range(dice.randint(2, 5)):
                process.stdout.readline()
            time.sleep(dice.random() * 0.2)
            process.send_signal(signal.SIGKILL)
            kills += 1
            process.communicate()
            continue
        words = process.communicate(timeout=300)[0]
        assert process.returncode == 0, words
        break
    happened = events(out)
    assert {who for who, _ in happened} == set(contents)
    for student in contents:
        assert happened[student, "graded"] == happened[student, "fetched"] == 1, student
    assert all(row["points"] == "3" for row in gradebook(out).values())


def test_the_command_reads_the_course_beside_the_sheet(
    tmp_path: Path, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = sheet_of(tmp_path, {"7": "10"})
    link = sheet.read_text().splitlines()[1].partition(",")[2]
    text = f"提交时间,学号,姓名,链接\n2026/3/10 下午 1:00,7,张三,{link}\n"
    sheet.write_bytes(text.encode("gbk"))
    course = 'timezone = "UTC+8"\ndeadline = 2026-03-10T12:00:00\n'
    course += "[late]\nper_day = 0.5\ndays = 1\n[assignments]\na1 = 1\n"
    (tmp_path / "course.toml").write_text(course)
    told = ["--unsandboxed", "--allow-local", "--no-throughput"]
    arguments = ["batch", str(sheet), "a1.broadcast", *told]
    assert main([*arguments, "--out", str(tmp_path / "late")]) == 0
    said = capsys.readouterr().out
    assert "was read as GBK" in said and "1 students: 1 late" in said
    row = gradebook(tmp_path / "late")["7"]
    assert (row["name"], row["grade"], row["a1 late"]) == ("张三", "50", "1 h 0 min")
    assert main([*arguments, "--out", str(tmp_path / "any"), "--deadline", "none"]) == 0
    assert gradebook(tmp_path / "any")["7"]["grade"] == "100"
    in_time = [
        "--out",
        str(tmp_path / "utc"),
        "--timezone",
        "UTC",
        "--deadline",
        "2026-03-10 13:30",
    ]
    assert main([*arguments, *in_time]) == 0
    assert gradebook(tmp_path / "utc")["7"]["status"] == "graded"
    capsys.readouterr()
    for wrong, words in (
        (["--deadline", "soon"], "got 'soon'"),
        (["--timezone", "Mars"], "'Mars' is no time zone"),
        (["--link-column", "URL"], "no column is named 'URL'"),
        (["--course", str(tmp_path / "none.toml")], "none.toml"),
    ):
        assert main([*arguments, "--out", str(tmp_path / "no"), *wrong]) == 2
        assert words in capsys.readouterr().err
