"""`grader check`, run on checks of every fate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import FATES, Project, Run

SURVIVORS = [f"f.{name}" for name in FATES if name != "killer"]


@pytest.fixture(scope="module")
def graded(project: Project) -> tuple[Run, dict[str, Any]]:
    """One run over every fate but the killer: what it printed and its JSON."""
    run = project.check(*SURVIVORS, "--seed", "7", "--json", "out/results.json")
    return run, json.loads((project.folder / "out" / "results.json").read_text())


def _task(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(task for task in document["tasks"] if task["task"] == f"f.{name}")


@pytest.mark.parametrize(
    ("name", "status", "points", "max_points", "skipped"),
    [
        ("whole", "passed", 10, 10, 0),
        ("part", "partial", 4, 10, 0),
        ("wrong", "failed", 0, 10, 0),
        ("plain_assert", "failed", 0, 10, 0),
        ("stub", "unimplemented", 0, 10, 0),
        ("raises", "error", 0, 10, 0),
        ("slow", "timeout", 0, 10, 0),
        ("gpu", "skipped", 0, 0, 10),
        ("half", "partial", 2, 8, 0),
        ("kit", "error", 0, 10, 0),
        ("teardown", "error", 0, 10, 0),
        ("unchecked", "error", 0, 10, 0),
    ],
)
def test_each_fate_gives_its_status_and_points(
    graded: tuple[Run, dict[str, Any]],
    name: str,
    status: str,
    points: float,
    max_points: float,
    skipped: float,
) -> None:
    task = _task(graded[1], name)
    found = (task["status"], task["points"], task["max_points"], task["skipped_points"])
    assert found == (status, points, max_points, skipped)


def test_json_has_the_documented_form(graded: tuple[Run, dict[str, Any]]) -> None:
    document = graded[1]
    assert list(document) == [
        *("format", "kit", "solution", "device", "seed", "seconds"),
        *("points", "max_points", "skipped_points", "tasks"),
    ]
    assert document["format"] == 1
    assert (document["solution"], document["device"], document["seed"]) == ("assignments", "cpu", 7)
    assert [task["task"] for task in document["tasks"]] == SURVIVORS
    for task in document["tasks"]:
        assert list(task) == [
            *("task", "assignment", "status", "points", "max_points", "skipped_points"),
            *("seconds", "checks"),
        ]
        assert task["assignment"] == "f_fates"
        for check in task["checks"]:
            keys = ["check", "status", "points", "max_points", "message", "metrics"]
            assert list(check) == keys
    for key in ("points", "max_points", "skipped_points"):
        assert document[key] == sum(task[key] for task in document["tasks"])


def test_parametrized_items_are_one_check(graded: tuple[Run, dict[str, Any]]) -> None:
    names = [check["check"] for check in _task(graded[1], "whole")["checks"]]
    assert names == ["adds up", "is also quick"]


def test_metrics_are_kept_on_pass_and_on_failure(graded: tuple[Run, dict[str, Any]]) -> None:
    passed = _task(graded[1], "whole")["checks"][0]
    failed = _task(graded[1], "part")["checks"][1]
    assert passed["metrics"] == {"bytes_per_rank": 300}
    assert failed["metrics"] == {"sent": 2, "limit": 48}
    assert _task(graded[1], "half")["checks"][0]["metrics"] == {"ratio": "nan"}


def test_failure_shows_message_and_cause_without_traceback(
    graded: tuple[Run, dict[str, Any]],
) -> None:
    out = graded[0].out
    assert "rank 2 sent 96 bytes, expected 48" in out
    assert "likely cause: it sends everything" in out
    message = _task(graded[1], "part")["checks"][1]["message"]
    assert message == "rank 2 sent 96 bytes, expected 48\nlikely cause: it sends everything"
    assert "raise CheckFailed" not in out
    assert f"ZeroDivisionError{' and so on' * 40} at ring.py:12" in out  # whole, in a pipe


def test_fault_of_the_kit_shows_its_traceback(graded: tuple[Run, dict[str, Any]]) -> None:
    for name, line in (("kit", "the kit's own mistake"), ("teardown", "teardown went wrong")):
        message = _task(graded[1], name)["checks"][0]["message"]
        assert "fault of the kit" in message
        assert line in message
        assert "fake_checks.py" in message


def test_points_missing_is_exit_1_with_total_and_skips_shown(
    graded: tuple[Run, dict[str, Any]],
) -> None:
    run, document = graded
    assert run.code == 1
    assert f"total: 16 of {document['max_points']:g} points" in run.out
    assert "skipped here, 10 points: f.gpu 10" in run.out
    assert "1 passed" not in run.out  # pytest itself is silent
    assert run.err == ""


def test_all_points_earned_is_exit_0_and_the_language_is_chinese(project: Project) -> None:
    run = project.check("f.whole", "f.gpu", "--lang", "zh", "--report", "page")
    assert run.code == 0, run.err
    assert "总分：10 / 10 分（占本机可得分数的 100 %）" in run.out
    assert "通过" in run.out
    page = (project.folder / "page" / "report.md").read_text()
    assert "| `f.whole` | 通过 | 10 / 10 |" in page
    assert "no GPU here" in page


def test_only_skipped_checks_are_no_pass(project: Project) -> None:
    run = project.check("f.gpu")
    assert run.code == 1
    assert "nothing could be graded" in run.out


def test_pytest_options_narrow_the_run(project: Project) -> None:
    run = project.check("--json", "k.json", "--", "-k", "whole_quick or wrong", "-x")
    document = json.loads((project.folder / "k.json").read_text())
    tasks = [(task["task"], task["status"], task["max_points"]) for task in document["tasks"]]
    # f.unchecked has no checks whatever -k says, and that is never silent.
    expected = [("f.whole", "passed", 4), ("f.wrong", "failed", 10), ("f.unchecked", "error", 10)]
    assert tasks == expected
    assert run.code == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["f.whloe"], "f.whole"),
        (["--solution", "nowhere"], "no such solution folder"),
        (["--solution", "checks"], "holds no assignment"),
        (["--seed", "seven"], "--seed"),
        (["--lang", "fr"], "--lang"),
        (["--frobnicate"], "--frobnicate"),
        (["--json", "assignments"], "is a folder"),
        (["--json", "/proc/none/x.json"], "/proc/none"),
    ],
)
def test_what_cannot_be_carried_out_is_exit_2_and_one_line(
    project: Project, arguments: list[str], word: str
) -> None:
    run = project.check(*arguments)
    assert run.code == 2
    assert word in run.err
    assert run.err.count("\n") == 1
    assert run.out == ""


@pytest.mark.parametrize(
    ("options", "word"),
    [(["--frobnicate"], "--frobnicate"), (["-k", "nothing_of_the_kind"], "nothing was graded")],
)
def test_pytest_options_that_select_or_mean_nothing_are_exit_2(
    project: Project, options: list[str], word: str
) -> None:
    run = project.check("f.whole", "--", *options)
    assert run.code == 2
    assert word in run.err
    assert run.err.count("\n") == 1


@pytest.mark.parametrize(("name", "code"), [("SIGKILL", -9), ("SIGINT", 2)])
def test_killed_run_keeps_what_was_graded(project: Project, name: str, code: int) -> None:
    run = project.check("f.whole", "f.killer", "--json", f"{name}.json", KILL_WITH=name)
    assert run.code == code
    document = json.loads((project.folder / f"{name}.json").read_text())
    assert _task(document, "whole")["status"] == "passed"
    killer = _task(document, "killer")
    assert (killer["status"], killer["checks"][0]["message"]) == ("error", "did not run")
    assert (document["points"], document["max_points"]) == (10, 20)


def test_module_of_checks_that_cannot_be_imported_is_a_fault_of_the_kit(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    (project.folder / "checks" / "fake_checks.py").write_text("import no_such_module\n")
    run = project.check("f.whole", "--json", "results.json")
    assert run.code == 1
    document = json.loads((project.folder / "results.json").read_text())
    assert _task(document, "whole")["status"] == "error"
    assert (document["points"], document["max_points"]) == (0, 10)
    assert "no_such_module" in run.out
