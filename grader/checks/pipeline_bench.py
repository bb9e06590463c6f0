"""Asking a solution for schedules, and judging what comes back: shared by assignments 6 and 7."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from grader.checks.causes_pipeline import why_hungry
from grader.checks.framework import CheckFailed
from grader.checks.pipeline_judge import (
    Costs,
    Home,
    Measured,
    Plan,
    check_valid,
    measure,
    read_plan,
)
from grader.checks.world import SimulatedCluster

EPSILON = 1e-9  # relative: sums of costs in another order


class Size(NamedTuple):
    """One call of a scheduler, and the shape that its schedule is to have."""

    arguments: tuple[int, ...]
    label: str
    ranks: int
    stages: int
    microbatches: int
    home: Home
    opposite: Callable[[int], int] | None = None


def ask(cluster: SimulatedCluster, task: str, sizes: Sequence[Size]) -> list[Plan]:
    """The solution's schedule of every size, each of them valid (else `CheckFailed`)."""
    cases = [{"arguments": list(size.arguments)} for size in sizes]
    outputs, _ = cluster.run("a6:schedules", [{"task": task, "cases": cases}], task=task)
    plans: list[Plan] = []
    for size, answer in zip(sizes, outputs[0], strict=True):
        if "malformed" in answer:
            raise CheckFailed(f"{size.label}: {answer['malformed']}")
        plan = read_plan(answer["schedule"], size.label)
        check_valid(plan, size.ranks, size.stages, size.microbatches, size.home, size.opposite)
        plans.append(plan)
    return plans


def expect_refused(
    cluster: SimulatedCluster, task: str, cases: Sequence[tuple[tuple[int, ...], Sequence[int]]]
) -> None:
    """Every call (arguments, numbers that the message must name) raises `ValueError`."""
    asked = [{"arguments": list(arguments), "refused": True} for arguments, _ in cases]
    outputs, _ = cluster.run("a6:schedules", [{"task": task, "cases": asked}], task=task)
    name = task.partition(".")[2]
    for (arguments, numbers), answer in zip(cases, outputs[0], strict=True):
        call = f"{name}({', '.join(map(str, arguments))})"
        expect_value_error(answer.get("error"), call, numbers)


def expect_value_error(error: dict[str, Any] | None, call: str, numbers: Sequence[Any]) -> None:
    """`error`, as drivers describe it, is a `ValueError` whose message names the numbers."""
    if error is None:
        raise CheckFailed(f"{call}: expected a ValueError, but a result was returned")
    if "ValueError" not in error["bases"]:
        raise CheckFailed(f"{call}: expected a ValueError, got {error['type']}: {error['message']}")
    missing = [n for n in numbers if str(n) not in error["message"]]
    if missing:
        raise CheckFailed(
            f"{call}: the ValueError names no {missing[0]}: {error['message']!r}",
            cause="a message that does not say what was given and what was expected",
        )


def expect_makespan(
    plan: Plan, costs: Costs, most: float, why: Callable[[Plan, Measured], str | None]
) -> Measured:
    """The plan takes at most `most`."""
    measured = measure(plan, costs)
    if measured.makespan > most * (1 + EPSILON):
        raise CheckFailed(
            f"{plan.label} at {words(costs)}: makespan {measured.makespan:.6g}, expected at most "
            f"{most:.6g}",
            cause=why(plan, measured),
        )
    return measured


def expect_bubble(
    plan: Plan, costs: Costs, most: float, why: Callable[[Plan, Measured], str | None]
) -> Measured:
    """No rank idles longer than `most`."""
    measured = measure(plan, costs)
    worst = max(measured.bubbles)
    if worst > most + EPSILON * measured.makespan:
        raise CheckFailed(
            f"{plan.label} at {words(costs)}: rank {measured.bubbles.index(worst)} idles for "
            f"{worst:.6g} of {measured.makespan:.6g}, expected at most {most:.6g}"
            f"{plan.row(measured.bubbles.index(worst))}",
            cause=why(plan, measured),
        )
    return measured


def expect_peaks(plan: Plan, most: Sequence[int]) -> None:
    """No rank keeps more chunks alive than its entry of `most`."""
    peaks = measure(plan, Costs(1, 1, 1, 3)).peaks
    for rank, (peak, allowed) in enumerate(zip(peaks, most, strict=True)):
        if peak > allowed:
            raise CheckFailed(
                f"{plan.label}: rank {rank} keeps {peak} chunks alive at once, expected at most "
                f"{allowed} (all ranks: {peaks}){plan.row(rank)}",
                cause=why_hungry(plan, rank, allowed),
            )


def words(costs: Costs) -> str:
    """(F, I, W, FB) = (1, 1, 1, 3)."""
    return f"(F, I, W, FB) = ({', '.join(f'{c:g}' for c in costs)})"
