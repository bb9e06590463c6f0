"""From exceptions to outcomes, and from outcomes of items to a check and a task."""

from __future__ import annotations

import pytest

from grader.checks.framework import CheckFailed, CheckStatus, SolutionTimeout, check
from grader.checks.outcomes import Outcome, judge, merge
from grader.checks.results import CheckResult, task_status


def _caught(error: BaseException) -> pytest.ExceptionInfo[BaseException]:
    with pytest.raises(BaseException) as caught:
        raise error
    return caught


def test_failure_inside_a_group_is_found() -> None:
    group = ExceptionGroup("two", [ValueError("x"), CheckFailed("sum is wrong", cause="order")])
    outcome = judge(_caught(ExceptionGroup("outer", [group])), "")
    assert (outcome.status, outcome.message, outcome.cause) == ("failed", "sum is wrong", "order")


def test_status_of_subclasses_and_of_pytests_own_exceptions() -> None:
    assert judge(_caught(SolutionTimeout("slow")), "").status == "timeout"
    assert judge(_caught(CheckFailed("x", status="error")), "").status == "error"
    assert judge(_caught(pytest.skip.Exception("no GPU")), "") == Outcome("skipped", 0.0, "no GPU")
    assert judge(_caught(pytest.fail.Exception("bad")), "").message == "bad"
    assert judge(None, "").status == "passed"


@pytest.mark.parametrize(
    ("statuses", "missing", "status", "points"),
    [
        (["passed", "passed"], 0, "passed", 6),
        (["passed"], 1, "error", 0),
        (["passed", "timeout", "failed"], 0, "timeout", 0),
        (["failed"], 2, "failed", 0),
        (["skipped", "passed"], 0, "passed", 6),
        (["skipped", "skipped"], 0, "skipped", 0),
        ([], 0, "error", 0),
    ],
)
def test_items_of_a_check(
    statuses: list[CheckStatus], missing: int, status: str, points: float
) -> None:
    result = CheckResult("adds up", 6.0)
    merge(result, [Outcome(each, float(each == "passed")) for each in statuses], missing)
    assert (result.status, result.points) == (status, points)


def test_least_award_of_the_items_counts() -> None:
    result = CheckResult("is fast", 8.0)
    merge(result, [Outcome("passed", 1.0), Outcome("passed", 0.25, "ratio 0.4")], 0)
    assert (result.status, result.points, result.message) == ("failed", 2.0, "ratio 0.4")


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ([], "error"),
        (["skipped"], "skipped"),
        (["skipped", "passed"], "passed"),
        (["passed", "failed"], "partial"),
        (["unimplemented", "unimplemented", "skipped"], "unimplemented"),
        (["unimplemented", "failed"], "failed"),
        (["error", "error", "failed"], "error"),
        (["timeout", "failed", "error"], "timeout"),
    ],
)
def test_status_of_a_task(statuses: list[CheckStatus], status: str) -> None:
    checks = [CheckResult("x", 2.0, each, 2.0 * (each == "passed")) for each in statuses]
    assert task_status(checks) == status


@pytest.mark.parametrize("points", [0, -1, float("nan"), float("inf")])
def test_check_without_points_is_refused(points: float) -> None:
    with pytest.raises(ValueError, match="points must be positive"):
        check("a1.broadcast", points=points, name="adds up")
