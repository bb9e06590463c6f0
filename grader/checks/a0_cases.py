"""How the checks of assignment 0 ask and judge: cases in one worker, each judged on its own."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from grader.checks.causes_a0 import common_trait
from grader.checks.framework import CheckFailed, SolutionError, SolutionTimeout
from grader.checks.world import SimulatedCluster

Suspects = Sequence[tuple[float, str]]


@dataclass
class Case:
    """One call. label: in words. arguments: by keyword, as `drivers.a0.calls` takes them.

    judge(returned): raises CheckFailed. refused: instead, words of the ValueError that it must
    raise, each a regular expression. asked: those in plain words, where they are not just numbers.
    blame(message): why a message that lacks them may be wrong, if it shows. traits: what is true of
    it, keys of `causes_a0.TRAITS`.
    """

    label: str
    arguments: dict[str, Any]
    judge: Callable[[Any], None] = lambda returned: None
    refused: Sequence[str] = ()
    asked: str = ""
    blame: Callable[[str], str | None] = lambda message: None
    traits: frozenset[str] = field(default_factory=frozenset)


def run(
    cluster: SimulatedCluster,
    task: str,
    cases: Sequence[Case],
    *,
    seconds: float = 20.0,
    slow: str | None = None,
) -> None:
    """Make all calls and judge them; the first failure speaks, with the cause that they share.

    seconds: for all calls together; slow: the likely cause when they take longer.
    """
    inputs = {"task": task, "cases": [{"arguments": case.arguments} for case in cases]}
    try:
        outcome = cluster.run(
            "a0:calls", [inputs], task=task, time_limit=seconds, wall_seconds=seconds + 10
        )
    except SolutionTimeout as failure:
        failure.cause = slow or failure.cause
        raise
    failed: list[tuple[Case, CheckFailed]] = []
    for case, answer in zip(cases, outcome.outputs[0], strict=True):
        try:
            _judge(case, answer)
        except CheckFailed as failure:
            failed.append((case, failure))
    if failed:
        case, first = failed[0]
        first.message = f"{case.label}: {first.message}"
        wrong = [each for each, _ in failed]
        right = [each for each in cases if each not in wrong]
        shared = common_trait([each.traits for each in wrong], [each.traits for each in right])
        evidence = next((each.cause for _, each in failed if each.cause), None)
        first.cause = f"{shared} ({evidence})" if shared and evidence else shared or evidence
        raise first


def _judge(case: Case, answer: dict[str, Any]) -> None:
    error = answer["error"]
    if not case.refused:
        if error is not None:
            raise SolutionError(f"raised {error['type']}: {error['message']} (at {error['where']})")
        case.judge(answer["returned"])
        return
    if error is None:
        raise CheckFailed(
            f"returned {shown(answer['returned'])}, expected a ValueError",
            cause="the argument is not checked",
        )
    if error["type"] != "ValueError":
        raise CheckFailed(
            f"raised {error['type']}: {error['message']} (at {error['where']}), expected a "
            f"ValueError",
            cause="the error comes from code that stumbled over the argument, not from a check",
        )
    for word in case.refused:
        if not re.search(word, error["message"]):
            raise CheckFailed(
                f"the ValueError says {shown(error['message'])}, expected it to hold "
                f"{case.asked or _plain(word)}",
                cause=case.blame(error["message"])
                or "a message must name what was wrong, so that one need not search",
            )


def _plain(word: str) -> str:
    """The text that a regular expression looks for, without what must not stand beside it."""
    return re.sub(r"\(\?[^)]*\)|\\b", "", word).replace("\\", "")


def expect_number(
    got: Any,
    expected: float,
    unit: str,
    suspects: Suspects = (),
    *,
    operations: int = 16,
    what: str = "",
) -> None:
    """A float64 within `operations` roundings. suspects: wrong values that people get."""
    number = isinstance(got, (int, float)) and not isinstance(got, bool)
    if number and _near(got, expected, operations):
        return
    cause, told = None, shown(got)
    if number:
        cause = next((why for value, why in suspects if _near(got, value, operations)), None)
        told = f"{got:.12g}"
    asked = f"{expected:.12g} {unit}"
    raise CheckFailed(what + f"returned {told}, expected {asked}", cause=cause)


def _near(a: float, b: float, operations: int) -> bool:
    return math.isfinite(a) and abs(a - b) <= operations * sys.float_info.epsilon * abs(b)


def expect_same(
    got: Any, expected: Any, what: str, suspects: Iterable[tuple[Any, str]] = ()
) -> None:
    """Equal; tuples count as lists. suspects: wrong values that people get."""
    if got == expected:
        return
    cause = next((why for value, why in suspects if got == value), None)
    raise CheckFailed(f"{what} is {shown(got)}, expected {shown(expected)}", cause=cause)


def shown(value: Any, most: int = 150) -> str:
    """A value as code, cut where it is long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"


def refusals(**wrong: tuple[dict[str, Any], list[Any]]) -> list[Case]:
    """name=(the right arguments, wrong values of this one): each must be named with its value."""
    return [
        Case(f"{name}={value!r}", right | {name: value}, refused=[rf"(?<!\d){value}(?!\d)"])
        for name, (right, values) in wrong.items()
        for value in values
    ]
