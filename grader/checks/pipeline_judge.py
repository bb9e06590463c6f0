"""Schedules judged on the examiner's side: valid, how long, how many activations.

The same accounting as the given `timeline.py`, from the same page, but none of its code: what a
student has changed in the given files changes nothing here. Schedules arrive as text, one line per
rank: "F0.3" (kind, stage, micro-batch), "F1.4+B6.2" for an overlapped pair.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from grader.checks.causes_schedule import (
    why_incomplete,
    why_no_w,
    why_outside,
    why_stuck,
    why_too_early,
)
from grader.checks.framework import CheckFailed

#: Steps of a rank that a message shows.
SHOWN = 12

Action = tuple[str, int, int]
Step = tuple[Action, ...]  # one action, or the forward and the backward of a pair
Home = Callable[[int, int], int]

_ACTION = re.compile(r"([A-Za-z]+)(-?\d+)\.(-?\d+)")


class Costs(NamedTuple):
    """F, I, W of one chunk and FB of an overlapped pair; a whole backward takes I + W."""

    f: float
    i: float
    w: float
    fb: float

    def of(self, step: Step) -> float:
        """The time of one step. A pair of F and I saves what one of F and B would."""
        if len(step) == 2:
            return self.fb if step[1][0] == "B" else max(self.f, self.fb - self.w)
        return {"F": self.f, "B": self.i + self.w, "I": self.i, "W": self.w}[step[0][0]]


#: The four cost sets at which schedules are timed.
COSTS = (
    Costs(1, 1, 1, 3),
    Costs(1, 1, 1, 2.5),
    Costs(1, 1, 1, 2),
    Costs(1, 1.2, 0.8, 2.7),
)


@dataclass(frozen=True)
class Measured:
    """Makespan, and by rank: idle time and the most chunks alive at once."""

    makespan: float
    bubbles: list[float]
    peaks: list[int]


@dataclass(frozen=True)
class Plan:
    """A schedule that came back for `label` ("8 ranks, 20 micro-batches")."""

    label: str
    ranks: list[list[Step]]

    def actions(self) -> Iterator[tuple[int, int, Action]]:
        """(rank, step, action) of everything."""
        for rank, steps in enumerate(self.ranks):
            for index, step in enumerate(steps):
                for action in step:
                    yield rank, index, action

    @property
    def pairs(self) -> int:
        """How many steps are overlapped pairs."""
        return sum(len(step) == 2 for steps in self.ranks for step in steps)

    def at(self, rank: int, index: int) -> str:
        """A step in words."""
        return f"rank {rank}, step {index} ({step_text(self.ranks[rank][index])})"

    def row(self, rank: int, around: int = 0) -> str:
        """The steps of a rank, in a line of their own; of a long one those around a step."""
        steps = [step_text(step) for step in self.ranks[rank]]
        begin = max(0, min(around - SHOWN // 2, len(steps) - SHOWN))
        shown = steps[begin : begin + SHOWN]
        before = ["…"] if begin else []
        after = [f"… ({len(steps)} steps)"] if begin + len(shown) < len(steps) else []
        return f"\n  rank {rank}: {' '.join([*before, *shown, *after]) or 'nothing'}"


def step_text(step: Step) -> str:
    """ "F1.4+B6.2"."""
    return "+".join(f"{kind}{stage}.{microbatch}" for kind, stage, microbatch in step)


def read_plan(lines: Sequence[str], label: str) -> Plan:
    """The schedule of a driver's answer; raises `CheckFailed` for what is no step."""
    ranks: list[list[Step]] = []
    for rank, line in enumerate(lines):
        steps: list[Step] = []
        for word in line.split():
            found = [_ACTION.fullmatch(part) for part in word.split("+")]
            step = tuple((m[1], int(m[2]), int(m[3])) for m in found if m is not None)
            if len(step) != len(found) or len(step) > 2:
                raise CheckFailed(f"{label}: rank {rank}, step {len(steps)} is no step: {word}")
            steps.append(step)
        ranks.append(steps)
    return Plan(label, ranks)


# Validity --------------------------------------------------------------------------------------


def check_valid(
    plan: Plan,
    ranks: int,
    stages: int,
    microbatches: int,
    home: Home,
    opposite: Callable[[int], int] | None = None,
) -> None:
    """Raise `CheckFailed` unless the schedule is a valid one of this size.

    home(stage, micro-batch): the rank it belongs on. opposite(micro-batch): the direction; given
    when the halves of a pair must belong to different ones.
    """
    if len(plan.ranks) != ranks:
        _fail(plan, f"expected {ranks} lists of steps, got {len(plan.ranks)}", None)
    places: dict[Action, tuple[int, int]] = {}
    for rank, index, action in plan.actions():
        kind, stage, microbatch = action
        here = plan.at(rank, index)
        if kind not in ("F", "B", "I", "W"):
            _fail(plan, f"{here}: kind {kind!r} is none of F, B, I, W", None)
        if not (0 <= stage < stages and 0 <= microbatch < microbatches):
            _fail(
                plan,
                f"{here}: stages are 0 … {stages - 1}, micro-batches 0 … {microbatches - 1}",
                why_outside(
                    (action for _, _, action in plan.actions()),
                    stages,
                    microbatches,
                    two_ways=opposite is not None,
                ),
                rank,
            )
        if action in places:
            other, place = places[action]
            _fail(plan, f"{here} repeats step {place} of rank {other}", "a chunk is done twice")
        places[action] = rank, index
        if home(stage, microbatch) != rank:
            _fail(
                plan,
                f"{here}: stage {stage} of micro-batch {microbatch} belongs on rank "
                f"{home(stage, microbatch)}",
                "the stages lie on other ranks than the docstring says",
            )
    _check_pairs(plan, opposite)
    _check_complete(plan, places, stages, microbatches)
    measure(plan, COSTS[0])


def _check_pairs(plan: Plan, direction: Callable[[int], int] | None) -> None:
    for rank, steps in enumerate(plan.ranks):
        for index, step in enumerate(steps):
            if len(step) < 2:
                continue
            (first, stage, one), (second, back, other) = step
            here = plan.at(rank, index)
            if first != "F" or second not in ("B", "I"):
                _fail(plan, f"{here}: a pair is an F and a B or I, in this order", None)
            if (stage, one) == (back, other):
                _fail(
                    plan,
                    f"{here}: both halves belong to the same chunk",
                    "the backward of a chunk needs the forward's result: they cannot overlap",
                )
            if direction is not None and one == other:
                _fail(plan, f"{here}: both halves belong to micro-batch {one}", None)
            if direction is not None and direction(one) == direction(other):
                _fail(
                    plan,
                    f"{here}: both halves belong to the same direction",
                    "a pair is to hide one direction's communication behind the other's",
                )


def _check_complete(
    plan: Plan, places: dict[Action, tuple[int, int]], stages: int, microbatches: int
) -> None:
    for stage in range(stages):
        for microbatch in range(microbatches):
            found = "".join(k for k in "FBIW" if (k, stage, microbatch) in places)
            if found in ("FB", "FIW"):
                continue
            chunk = f"stage {stage} of micro-batch {microbatch}"
            if found == "FI":
                _fail(
                    plan,
                    f"{chunk} has an I and no W",
                    why_no_w(places),
                )
            if "B" in found and found != "FB" and "F" in found:
                _fail(
                    plan,
                    f"{chunk} has {', '.join(found)}: B is the whole backward, I and W its halves",
                    "the backward of a chunk is done twice",
                )
            have = ", ".join(found) or "nothing"
            _fail(
                plan,
                f"{chunk} has {have}: expected F and B, or F, I and W",
                why_incomplete(found, places),
                places["F", stage, microbatch][0] if "F" in found else None,
            )


def _fail(plan: Plan, message: str, cause: str | None, rank: int | None = None) -> None:
    """rank: whose steps are shown."""
    row = "" if rank is None else plan.row(rank)
    raise CheckFailed(f"{plan.label}: {message}{row}", cause=cause)


# Time ------------------------------------------------------------------------------------------


def measure(plan: Plan, costs: Costs) -> Measured:
    """Run the plan on paper; raises `CheckFailed` when it cannot run to its end."""
    last = max((stage for _, _, (_, stage, _) in plan.actions()), default=0)
    position = [0] * len(plan.ranks)
    clock = [0.0] * len(plan.ranks)
    done: dict[Action, float] = {}
    blocked: dict[Action, list[int]] = {}
    runnable = list(range(len(plan.ranks)))
    while runnable:
        rank = runnable.pop()
        steps = plan.ranks[rank]
        while position[rank] < len(steps):
            step = steps[position[rank]]
            needs = _needs(step, last)
            missing = next((need for need in needs if need not in done), None)
            if missing is not None:
                blocked.setdefault(missing, []).append(rank)
                break
            begin = max([clock[rank], *(done[need] for need in needs)])
            clock[rank] = begin + costs.of(step)
            position[rank] += 1
            for action in step:
                made = _made(action)
                done[made] = clock[rank]
                runnable += blocked.pop(made, [])
    if any(place < len(steps) for place, steps in zip(position, plan.ranks, strict=True)):
        raise _stuck(plan, position, done, last)
    makespan = max(clock, default=0.0)
    busy = [sum(map(costs.of, steps)) for steps in plan.ranks]
    return Measured(makespan, [makespan - b for b in busy], [_peak(s) for s in plan.ranks])


def _made(action: Action) -> Action:
    """What an action makes: B makes the gradient of the inputs, as I does."""
    return ("I", *action[1:]) if action[0] == "B" else action


def _needs(step: Step, last: int) -> list[Action]:
    needs: list[Action] = []
    for kind, stage, microbatch in step:
        if kind == "F" and stage > 0:
            needs.append(("F", stage - 1, microbatch))
        elif kind == "W":
            needs.append(("I", stage, microbatch))
        elif kind in ("B", "I"):
            needs.append(("F", stage, microbatch))
            if stage < last:
                needs.append(("I", stage + 1, microbatch))
    return needs


def _stuck(
    plan: Plan, position: Sequence[int], done: dict[Action, float], last: int
) -> CheckFailed:
    places = {_made(action): (rank, index) for rank, index, action in plan.actions()}
    named = {_made(action): action for _, _, action in plan.actions()}
    rank = next(r for r, steps in enumerate(plan.ranks) if position[r] < len(steps))
    seen: list[int] = []
    lines: list[str] = []
    while rank not in seen:
        seen.append(rank)
        index = position[rank]
        need = next(n for n in _needs(plan.ranks[rank][index], last) if n not in done)
        here, what = plan.at(rank, index), step_text((named.get(need, need),))
        if need not in places:
            return CheckFailed(
                f"{plan.label}: {here} needs {what}, which no rank makes",
                cause="a chunk is left out",
            )
        other, place = places[need]
        if other == rank:
            return CheckFailed(
                f"{plan.label}: {here} needs {what}, which comes later on the same rank: step "
                f"{place}{plan.row(rank, index)}",
                cause=why_too_early(plan.ranks[rank][index], need),
            )
        lines.append(f"{here} waits for {what}, step {place} of rank {other}")
        rank = other
    cycle = lines[seen.index(rank) :]
    ring = seen[seen.index(rank) :]
    rows = "".join(plan.row(each, position[each]) for each in sorted(ring))
    waiting = [action for each in ring for action in plan.ranks[each][position[each]]]
    return CheckFailed(
        f"{plan.label}: deadlock: {'; '.join(cycle)}{rows}",
        cause=why_stuck(waiting),
    )


def _peak(steps: Sequence[Step]) -> int:
    alive = peak = 0
    for step in steps:
        alive += sum(action[0] == "F" for action in step)
        peak = max(peak, alive)
        alive -= sum(action[0] in "BW" for action in step)
    return peak


# What the tables say ---------------------------------------------------------------------------


def fill_bubble(ranks: int, costs: Costs) -> float:
    """GPipe, 1F1B, and interleaved in times of one chunk: (p - 1)(F + B)."""
    return (ranks - 1) * (costs.f + costs.i + costs.w)


def zero_bubble_bubble(ranks: int, costs: Costs) -> float:
    """ZB1P with at least as many micro-batches as ranks."""
    return (ranks - 1) * max(costs.f, costs.i, costs.f + costs.i - costs.w)


def one_f_one_b_makespan(ranks: int, microbatches: int, costs: Costs) -> float:
    """m(F + B) and the bubble."""
    return microbatches * (costs.f + costs.i + costs.w) + fill_bubble(ranks, costs)


def dualpipe_makespan(stages: int, microbatches: int, costs: Costs) -> float:
    """DualPipe of PP stages with M micro-batches in both directions together."""
    f, i, w, fb = costs
    k, n = stages // 2 - 1, min(i, w)
    bubble = max(k * (fb + f - w - n), k * (fb + i - w - n) - f, 0.0)
    saved = (microbatches - stages - 1) * (f + i + w - fb)
    return microbatches * (f + i + w) - saved + bubble


def smallest_largest_stage(costs: Sequence[float], stages: int) -> float:
    """The largest stage of the best cut of `costs` into `stages` contiguous, non-empty parts."""
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    best = [*sums]
    for stage in range(2, stages + 1):
        best = [
            min(
                (max(best[cut], sums[end] - sums[cut]) for cut in range(stage - 1, end)),
                default=float("inf"),
            )
            for end in range(len(sums))
        ]
    return best[-1]
