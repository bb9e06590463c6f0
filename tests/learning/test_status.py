"""`grader status`: how far one is, and what to do next."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from grader import tasks
from grader.report.history import file_digest
from grader.report.status import print_status

from .answers import ROOT

FOLDER = ROOT / "assignments"
FIRST, SECOND, THIRD = tasks.TASKS[:3]


def status(entries: dict[str, dict[str, Any]], language: str = "en") -> str:
    out = io.StringIO()
    print_status(Console(file=out, width=120), entries, "assignments", FOLDER, language)
    return out.getvalue()


def entry(task: tasks.Task, state: str, points: float, folder: Path = FOLDER) -> dict[str, Any]:
    return {"status": state, "points": points, "file": file_digest(folder, task)}


def passed(*done: tasks.Task) -> dict[str, dict[str, Any]]:
    return {task.id: entry(task, "passed", task.points) for task in done}


def last_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()][-3:]


def test_a_beginner_is_told_the_first_task_and_its_file() -> None:
    total, following, hint = last_lines(status({}))
    assert total == "no results of assignments yet"
    assert FIRST.id in following and f"assignments/{FIRST.path}" in following
    assert f"grader hint {FIRST.id}" in hint


def test_progress_is_shown_in_points_and_as_a_bar() -> None:
    done = tasks.ASSIGNMENTS[0].tasks
    shown = status(passed(*done))
    total, following, _ = last_lines(shown)
    earned = sum(task.points for task in done)
    most = sum(task.points for task in tasks.TASKS)
    assert f"{earned:g} of {most:g} points" in total and "█" in total and "░" in total
    assert tasks.ASSIGNMENTS[1].tasks[0].id in following
    assert "█" * 10 in shown.splitlines()[0]  # the assignment's own bar


@pytest.mark.parametrize("state", ["failed", "partial", "error", "timeout"])
def test_what_lost_points_comes_before_new_tasks(state: str) -> None:
    entries = passed(FIRST) | {THIRD.id: entry(THIRD, state, 0)}
    _, following, hint = last_lines(status(entries))
    assert THIRD.id in following and "lost points" in following and THIRD.id in hint


def test_what_was_edited_since_is_not_called_wrong() -> None:
    changed = {FIRST.id: {"status": "failed", "points": 0, "file": "another"}}
    _, following, _ = last_lines(status(changed))
    assert SECOND.id in following


def test_everything_done_and_everything_edited() -> None:
    everything = passed(*tasks.TASKS)
    assert last_lines(status(everything))[-1] == "nothing is left to do: every point is earned"
    everything[SECOND.id]["file"] = "another"
    assert f"grader check {SECOND.id}" in last_lines(status(everything))[-1]


def test_it_speaks_chinese() -> None:
    total, following, hint = last_lines(status({}, "zh"))
    assert "还没有结果" in total and "下一步" in following and "卡住了" in hint
    assert "PCIe 链路" in following
