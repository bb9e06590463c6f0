"""Results of a run: checks, tasks, totals; and their JSON form (format 1)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from grader import __version__
from grader.checks.framework import CheckStatus, explain

TaskStatus = Literal["passed", "partial", "failed", "unimplemented", "error", "timeout", "skipped"]
FORMAT = 1
DID_NOT_RUN = "did not run"


@dataclass
class CheckResult:
    """What became of one check. `points` of a skipped check are 0; `max_points` is its worth."""

    check: str
    max_points: float
    status: CheckStatus = "error"
    points: float = 0.0
    message: str = DID_NOT_RUN
    cause: str | None = None
    metrics: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Its entry in `checks`."""
        return {
            "check": self.check,
            "status": self.status,
            "points": _round(self.points),
            "max_points": _round(self.max_points),
            "message": explain(self.message, self.cause),
            "metrics": {str(key): plain(value) for key, value in self.metrics.items()},
        }


@dataclass
class TaskResult:
    """What became of one task; everything but `seconds` follows from its checks."""

    task: str
    assignment: str
    checks: list[CheckResult] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def status(self) -> TaskStatus:
        """DESIGN's status of a task. No check at all is an error, never a pass."""
        return task_status(self.checks)

    @property
    def warnings(self) -> list[str]:
        """What the sanitizer noted in any check without failing it, each once."""
        noted = [w for check in self.checks for w in check.metrics.get("warnings", ())]
        return list(dict.fromkeys(str(warning) for warning in noted))

    @property
    def points(self) -> float:
        """Points earned."""
        return _round(sum(check.points for check in self.checks))

    @property
    def max_points(self) -> float:
        """Points that could be earned here: without the skipped checks'."""
        return _round(sum(c.max_points for c in self.checks if c.status != "skipped"))

    @property
    def skipped_points(self) -> float:
        """Points of checks that this machine cannot run."""
        return _round(sum(c.max_points for c in self.checks if c.status == "skipped"))

    def to_json(self) -> dict[str, Any]:
        """Its entry in `tasks`."""
        return {
            "task": self.task,
            "assignment": self.assignment,
            "status": self.status,
            "points": self.points,
            "max_points": self.max_points,
            "skipped_points": self.skipped_points,
            "seconds": round(self.seconds, 3),
            "checks": [check.to_json() for check in self.checks],
        }


@dataclass
class Results:
    """What became of a run. `tasks` holds every task of the run from its beginning: a check that
    has not run yet counts as not earned, so that a killed run never looks complete.
    interrupted: the user stopped it (Ctrl-C)."""

    solution: str
    device: str
    seed: int
    seconds: float = 0.0
    tasks: list[TaskResult] = field(default_factory=list)
    interrupted: bool = False

    @property
    def points(self) -> float:
        """Points earned."""
        return _round(sum(task.points for task in self.tasks))

    @property
    def max_points(self) -> float:
        """Points that could be earned here."""
        return _round(sum(task.max_points for task in self.tasks))

    @property
    def skipped_points(self) -> float:
        """Points of checks that this machine cannot run."""
        return _round(sum(task.skipped_points for task in self.tasks))

    @property
    def complete(self) -> bool:
        """Was every point that could be earned here earned, and was there any?"""
        judged = [task for task in self.tasks if task.status != "skipped"]
        return bool(judged) and all(task.status == "passed" for task in judged)

    def to_json(self) -> dict[str, Any]:
        """The whole document."""
        return {
            "format": FORMAT,
            "kit": __version__,
            "solution": self.solution,
            "device": self.device,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "points": self.points,
            "max_points": self.max_points,
            "skipped_points": self.skipped_points,
            "tasks": [task.to_json() for task in self.tasks],
        }


class Observer(Protocol):
    """Is told how a run goes. `grader.checks` knows no report: the command line hands them in.

    An observer may also have `check_ended(task, check)`, called as soon as a check is judged.
    """

    def began(self, results: Results) -> None:
        """All checks are known, none has run."""

    def task_began(self, task: str) -> None:
        """The first check of a task starts."""

    def task_ended(self, result: TaskResult, results: Results) -> None:
        """All checks of a task have run."""


def task_status(checks: list[CheckResult]) -> TaskStatus:
    """The status of a task with these checks.

    passed: all that were not skipped passed. partial: some points. With no points: unimplemented
    when every check says so, else the most frequent of timeout, failed and error.
    """
    judged = [check.status for check in checks if check.status != "skipped"]
    if not checks:
        return "error"
    if not judged:
        return "skipped"
    if all(status == "passed" for status in judged):
        return "passed"
    if any(check.points > 0 for check in checks):
        return "partial"
    if all(status == "unimplemented" for status in judged):
        return "unimplemented"
    count: Counter[str] = Counter(judged)
    order: tuple[TaskStatus, ...] = ("timeout", "failed", "error")
    return max(order, key=lambda status: (count[status], -order.index(status)))


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: numbers that JSON lacks become text, unknown types too."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)


def _round(points: float) -> float:
    """Points without the noise of adding thirds."""
    return round(float(points), 6)
