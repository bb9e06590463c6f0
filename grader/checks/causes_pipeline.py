"""Likely causes of slow or hungry schedules."""

from __future__ import annotations

from itertools import pairwise

from grader.checks.pipeline_judge import Costs, Measured, Plan


def why_idle(plan: Plan, measured: Measured) -> str:
    """Why a one-way schedule idles longer than it need."""
    kinds = {action[0] for _, _, action in plan.actions()}
    worst = measured.bubbles.index(max(measured.bubbles))
    if len(plan.ranks) > 1 and all(_first_backward(steps) == 1 for steps in plan.ranks):
        return "no rank runs ahead: each waits for the backward of a chunk before its next forward"
    if kinds == {"F", "I", "W"} and _weights_at_once(plan):
        return "every W follows its I at once: nothing is left to fill the gaps with"
    return f"rank {worst} idles most: look at its steps with `grader draw`"


def why_zero_bubble_idles(plan: Plan, measured: Measured) -> str:
    """Why a schedule that may cut its backwards in two idles longer than it need."""
    if not any(action[0] == "W" for _, _, action in plan.actions()):
        return "no backward is cut into I and W: nothing is left to fill the gaps with"
    return why_idle(plan, measured)


def why_slow(plan: Plan, measured: Measured, *, costs: Costs, half: int) -> str:
    """Why a two-way schedule takes longer than the published one.

    half: the first micro-batch of the second direction (the number of them, if there is one way).
    """
    if _one_after_the_other(plan, half):
        return (
            "the directions run one after the other, as two independent pipelines: each fills and "
            "drains on its own"
        )
    if plan.pairs == 0 and costs.fb < costs.f + costs.i + costs.w:
        return (
            "no step is an overlapped pair: forwards and backwards of the two directions never "
            "hide each other's communication"
        )
    kinds = {action[0] for _, _, action in plan.actions()}
    if "W" not in kinds:
        return "no backward is split: nothing fills the gaps of the start and the end"
    worst = measured.bubbles.index(max(measured.bubbles))
    return f"rank {worst} idles most: look at its steps with `grader draw`"


def why_hungry(plan: Plan, rank: int, allowed: int) -> str:
    """Why a rank keeps more chunks alive than it may."""
    steps = plan.ranks[rank]
    ahead = _first_backward(steps)
    if ahead > allowed:
        forwards = sum(action[0] == "F" for step in steps for action in step)
        if ahead == forwards:
            return f"it runs all {ahead} forwards before its first backward, as GPipe does"
        return f"it runs {ahead} forwards before its first backward; {allowed} fill the pipeline"
    if any(action[0] == "W" for step in steps for action in step):
        return "weight gradients are put off too long: a chunk lives until its W"
    return "it starts the next forward before it has finished a backward"


def _first_backward(steps: list[tuple[tuple[str, int, int], ...]]) -> int:
    """Forwards before the first backward."""
    count = 0
    for step in steps:
        if any(kind in ("B", "I") for kind, _, _ in step):
            return count + (len(step) == 2)
        count += 1
    return count


def _weights_at_once(plan: Plan) -> bool:
    for steps in plan.ranks:
        for step, following in zip(steps, [*steps[1:], ()], strict=True):
            if step[0][0] == "I" and (not following or following[0] != ("W", *step[0][1:])):
                return False
    return True


def _one_after_the_other(plan: Plan, half: int) -> bool:
    for steps in plan.ranks:
        sides = [microbatch >= half for step in steps for _, _, microbatch in step]
        if sum(a != b for a, b in pairwise(sides)) != 1:
            return False
    return True


def ratio_cause(got: float | None, measured: Measured, plan: Plan) -> str:
    """Why a bubble ratio is another than the largest bubble over the makespan."""
    if got is None:
        return "a number was expected"
    bubble, makespan = max(measured.bubbles), measured.makespan
    p, m = len(plan.ranks), 1 + max(i for _, _, (_, _, i) in plan.actions())
    for value, cause in (
        (bubble / (makespan - bubble) if bubble < makespan else -1, "divided by the busy time"),
        ((p - 1) / (m + p - 1), "(p-1)/(m+p-1) is the answer for one schedule, at one cost"),
        ((p - 1) / m, "(p-1)/m is the ratio to the ideal time of 1F1B, at one cost"),
    ):
        if abs(got - value) < 1e-9:
            return cause
    for rank, idle in enumerate(measured.bubbles):
        if abs(got - idle / makespan) < 1e-9:
            return f"that is the idle time of rank {rank}: the rank that idles most counts"
    if abs(got - sum(measured.bubbles) / len(measured.bubbles) / makespan) < 1e-9:
        return "that is the mean over the ranks: the rank that idles most counts"
    return "idle time runs from 0 to the makespan, and the rank that idles most counts"
