"""The checks that exist and the table of tasks agree."""

from __future__ import annotations

import importlib
from collections import defaultdict
from types import ModuleType

import pytest

from grader import tasks


def _points(module: ModuleType) -> dict[str, dict[str, float]]:
    """Per task, its checks and their points, read from the marks of the test functions."""
    points: dict[str, dict[str, float]] = defaultdict(dict)
    for name, function in vars(module).items():
        if not name.startswith("test"):
            continue
        for mark in getattr(function, "pytestmark", []):
            if mark.name == "check":
                known = points[mark.kwargs["task"]]
                same = known.setdefault(mark.kwargs["name"], mark.kwargs["points"])
                assert same == mark.kwargs["points"], mark.kwargs
    return points


@pytest.mark.parametrize("assignment", tasks.ASSIGNMENTS, ids=lambda each: each.name)
def test_checks_of_each_task_are_worth_the_tasks_points(assignment: tasks.Assignment) -> None:
    points: dict[str, dict[str, float]] = {}
    for name in {assignment.checks_of(task) for task in assignment.tasks}:
        points |= _points(importlib.import_module(name))
    sums = {task: sum(checks.values()) for task, checks in points.items()}
    assert sums == {task.id: pytest.approx(task.points) for task in assignment.tasks}
