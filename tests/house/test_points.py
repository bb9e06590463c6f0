"""The checks that exist and the table of tasks agree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grader import tasks

ROOT = Path(__file__).resolve().parents[2]

COLLECT = """
import json
from grader import tasks
from grader.checks.run import run_checks
results = run_checks(tasks.TASKS, ["--solution=reference"], ["--collect-only"])
print(json.dumps({
    task.task: {check.check: check.max_points for check in task.checks}
    for task in results.tasks
}))
"""


@pytest.fixture(scope="module")
def points() -> dict[str, dict[str, Any]]:
    """Per task its checks and their points, as the grader collects them."""
    run = subprocess.run(
        [sys.executable, "-c", COLLECT], cwd=ROOT, capture_output=True, text=True, check=True
    )
    collected: dict[str, dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
    return collected


@pytest.mark.parametrize("task", tasks.TASKS, ids=lambda task: task.id)
def test_checks_of_each_task_are_worth_its_points(
    points: dict[str, dict[str, Any]], task: tasks.Task
) -> None:
    checks = points[task.id]
    assert "has checks" not in checks
    assert sum(checks.values()) == pytest.approx(task.points)


@pytest.mark.parametrize("assignment", tasks.COURSE, ids=lambda each: each.name)
def test_an_assignment_is_worth_100_points(assignment: tasks.Assignment) -> None:
    assert assignment.points == 100
