"""From an exception to an outcome: is it the student's code that is wrong, or the kit?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from grader.checks.framework import CheckFailed, CheckStatus
from grader.checks.results import CheckResult
from grader.harness.words import clean, cleaned

FAULT_OF_THE_KIT = "this is a fault of the kit, not of the solution; please report it"


@dataclass
class Outcome:
    """What one pytest item came to. fraction: share of the check's points, in [0, 1]."""

    status: CheckStatus
    fraction: float = 1.0
    message: str = ""
    cause: str | None = None
    metrics: dict[str, Any] = field(default_factory=dict)


def judge(error: pytest.ExceptionInfo[BaseException] | None, traceback: str) -> Outcome:
    """The outcome of one phase of an item that ended with `error` (None: it passed).

    traceback: pytest's text of it, shown only when the kit is at fault.
    """
    if error is None:
        return Outcome("passed")
    value = error.value
    failed = next(_check_failures(value), None)
    if failed is not None:
        return Outcome(failed.status, 0.0, failed.message, failed.cause, failed.metrics)
    if isinstance(value, pytest.skip.Exception):
        return Outcome("skipped", 0.0, value.msg or "skipped")
    if isinstance(value, pytest.fail.Exception):
        return Outcome("failed", 0.0, value.msg or "failed")
    if isinstance(value, AssertionError):
        place = error.traceback[-1]
        where = f"{Path(place.path).name}:{place.lineno + 1}"
        return Outcome("failed", 0.0, f"{where}: {str(value) or 'assertion failed'}")
    return Outcome("error", 0.0, f"{FAULT_OF_THE_KIT}\n{traceback.strip()}")


def merge(result: CheckResult, outcomes: list[Outcome], missing: int) -> None:
    """Set `result` from the outcomes of its items, of which `missing` have not run.

    The first item that neither passed nor was skipped speaks for the check; points need all items.
    """
    for outcome in outcomes:
        result.metrics.update(cleaned(outcome.metrics))
    bad = [o for o in outcomes if o.status not in ("passed", "skipped")]
    ran = [o for o in outcomes if o.status == "passed"]
    if bad:
        _adopt(result, bad[0])
        result.metrics.update(cleaned(bad[0].metrics))
        result.points = 0.0
    elif missing:
        return
    elif ran:
        least = min(ran, key=lambda o: o.fraction)
        _adopt(result, least)
        result.status = "passed" if least.fraction >= 1.0 else "failed"
        result.points = result.max_points * least.fraction
    elif outcomes:
        _adopt(result, outcomes[0])
        result.points = 0.0


def _adopt(result: CheckResult, outcome: Outcome) -> None:
    result.status = outcome.status
    result.message = clean(outcome.message)
    result.cause = None if outcome.cause is None else clean(outcome.cause)


def _check_failures(value: BaseException) -> Iterator[CheckFailed]:
    """`value` itself, or what a group holds (hypothesis raises several distinct failures so)."""
    if isinstance(value, CheckFailed):
        yield value
    elif isinstance(value, BaseExceptionGroup):
        for each in value.exceptions:
            yield from _check_failures(each)
