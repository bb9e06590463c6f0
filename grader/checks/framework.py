"""What a check is made of: its points, its ways to fail, and the numbers it leaves behind.

    @check("a1.broadcast", points=3, name="moves no more than a tree must")
    def test_broadcast_volume(cluster, metrics):
        ...
        metrics["bytes_per_rank"] = largest
        if largest > allowed:
            raise CheckFailed(f"rank {rank} sent {largest} bytes, expected at most {allowed}",
                              cause="every rank sends the whole tensor")

Test functions (also parametrized ones) with the same task and name are one check: it earns its
points when all of its items pass. This module imports neither torch nor pytest at
once, so that `grader status` is quick.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeVar

CheckStatus = Literal["passed", "failed", "unimplemented", "error", "timeout", "skipped"]
FailureStatus = Literal["failed", "unimplemented", "error", "timeout"]

_F = TypeVar("_F", bound=Callable[..., object])


def check(task: str, points: float, name: str) -> Callable[[_F], _F]:
    """Mark a pytest function as (part of) a check of `task`, worth `points`.

    task: id from `grader.tasks`, "a1.broadcast".
    points: of the whole check, not of each parametrized item; positive.
    name: what the check demands, as a sentence that completes "the solution …".
    """
    if not (points > 0 and math.isfinite(points)):
        raise ValueError(f"check {name!r} of {task}: points must be positive, got {points}")
    import pytest

    mark = pytest.mark.check(task=task, points=float(points), name=name)

    def decorate(function: _F) -> _F:
        marked: _F = mark(function)
        return marked

    return decorate


#: Likely causes after which no other check of a task would tell more.
DOES_NOT_COMPILE = "the file does not compile: nothing in it can be graded until it does"
DOES_NOT_IMPORT = "a file of the solution cannot be imported"
EXCEEDS_LIMITS = "a loop that prints or allocates without end"
KILLS_OTHERS = "it ends processes that are not its own"
FINAL = (DOES_NOT_COMPILE, DOES_NOT_IMPORT, EXCEEDS_LIMITS, KILLS_OTHERS)


class CheckFailed(AssertionError):
    """The student's code did not do what the check demands.

    message: what was expected and what came, on which rank, in which slice.
    cause: the likely cause in one line, when there is one.
    metrics: numbers for the JSON result, added to those of the `metrics` fixture.
    """

    def __init__(
        self,
        message: str,
        cause: str | None = None,
        metrics: Mapping[str, Any] | None = None,
        status: FailureStatus = "failed",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.metrics = dict(metrics or {})
        self.status: FailureStatus = status

    def __str__(self) -> str:
        return explain(self.message, self.cause)


class Unimplemented(CheckFailed):
    """The stub is still there: it raised `NotImplementedError`."""

    def __init__(self, message: str = "not implemented yet", **kwargs: Any) -> None:
        super().__init__(message, **{"status": "unimplemented", **kwargs})


class SolutionError(CheckFailed):
    """The student's code raised, could not be imported, or its process died."""

    def __init__(self, message: str, **kwargs: Any) -> None:
        super().__init__(message, **{"status": "error", **kwargs})


class LimitExceeded(SolutionError):
    """The student's code took more memory or printed more than it may."""

    def __init__(self, message: str, **kwargs: Any) -> None:
        super().__init__(message, **{"cause": EXCEEDS_LIMITS, **kwargs})


class SolutionTimeout(CheckFailed):
    """The student's code did not end in the time it had."""

    def __init__(self, message: str, **kwargs: Any) -> None:
        super().__init__(message, **{"status": "timeout", **kwargs})


class Award(Protocol):
    """Type of the `award` fixture: give part of the points, in [0, 1], and say why."""

    def __call__(self, fraction: float, message: str = "") -> None: ...


def explain(message: str, cause: str | None, likely: str = "likely cause") -> str:
    """The text of a failure as people read it: the message, then the likely cause."""
    return f"{message}\n{likely}: {cause}" if cause else message
