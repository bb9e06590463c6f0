"""Each wrong solution fails the check it should, for the right reason; each right one passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from grader import tasks
from tests.solutions.grade import ROOT, described, files

ASSIGNMENTS = [assignment.key for assignment in tasks.ASSIGNMENTS]
CASES = [(key, file) for key in ASSIGNMENTS for file in files(key)]


@pytest.fixture(scope="session")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """Results by file of an assignment, graded once, in a process of its own."""

    @cache
    def grade(key: str) -> dict[str, Any]:
        out = tmp_path_factory.mktemp("graded") / f"{key}.json"
        run = subprocess.run(
            [sys.executable, "-m", "tests.solutions.grade", key, str(out)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr[-3000:]
        results: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return results

    return grade


def told(task: dict[str, Any]) -> str:
    """All that the student would read."""
    lines = [f"{task['status']} {task['points']:g}/{task['max_points']:g}"]
    for check in task["checks"]:
        if check["status"] != "passed":
            lines.append(f"- {check['status']}: {check['check']}\n{check['message']}")
    return "\n".join(lines)


@pytest.mark.parametrize(("key", "file"), CASES, ids=[f"{k}-{f.stem}" for k, f in CASES])
def test_solution(key: str, file: Path, graded: Callable[[str], dict[str, Any]]) -> None:
    _, expected = described(file)
    task = graded(key)[file.stem]
    if expected == "passed":
        assert task["status"] == "passed", told(task)
        assert task["points"] == task["max_points"] > 0
        return
    failing = [
        check
        for check in task["checks"]
        if check["status"] not in ("passed", "skipped") and expected["check"] in check["check"]
    ]
    assert failing, f"no failing check {expected['check']!r}:\n{told(task)}"
    assert any(check["status"] == expected["status"] for check in failing), told(task)
    assert any(expected["cause"] in check["message"] for check in failing), told(task)


@pytest.mark.parametrize("key", ASSIGNMENTS)
def test_every_task_has_three_wrong_solutions_and_an_unusual_right_one(key: str) -> None:
    wrong: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for file in files(key):
        task, expected = described(file)
        (right if expected == "passed" else wrong)[task] += 1
    # Kernels have solutions of their own: tests/kernels/test_solutions.py grades them.
    for task in [each for each in tasks.select([key]) if not each.is_kernel]:
        assert wrong[task.id] >= 3, f"{task.id} has {wrong[task.id]} wrong solutions"
        assert right[task.id] >= 1, f"{task.id} has no unusual right solution"
