"""Given: whether a schedule is valid, and how long it takes.

The accounting of the whole kit: communication takes no time; a rank runs its steps in order, each
as soon as its inputs are there. The bubble of a rank is the makespan minus its busy time, that of
a schedule the largest of its ranks'. A chunk's activations live from the start of its F to the end
of its W (or B); the peak of a rank is the most chunks that are alive on it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .schedule import Action, Overlapped, Placement, Schedule, Step, actions_of, count_chunks

__all__ = ["Costs", "ScheduleError", "Timeline", "time_schedule", "validate"]


class Costs(NamedTuple):
    """Time of each kind of step, per chunk, in any unit.

    F, I, W: forward, gradient of the inputs, of the weights. A whole backward takes I + W.
    FB: an ``Overlapped`` pair of F and B; I + W <= FB <= F + I + W. A pair of F and I saves as
    much against running both, so it takes FB - W, though never less than F.
    """

    F: float = 1.0
    I: float = 1.0  # noqa: E741 (the name of the papers)
    W: float = 1.0
    FB: float = 3.0

    @property
    def B(self) -> float:  # noqa: N802
        """A whole backward."""
        return self.I + self.W

    def of(self, step: Step) -> float:
        """The time of one step."""
        if isinstance(step, Overlapped):
            return self.FB if step.backward.kind == "B" else max(self.F, self.FB - self.W)
        return self.B if step.kind == "B" else float(getattr(self, step.kind))


class ScheduleError(ValueError):
    """A schedule that cannot run, or is not the one that was asked for.

    fault: "action", "pair", "placement", "twice", "missing", "order" or "deadlock".
    """

    def __init__(self, fault: str, message: str) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True)
class Timeline:
    """When everything happens. begin[r][i] and end[r][i] are of step i of rank r.

    makespan: the end of the last step. busy, peaks: by rank.
    """

    schedule: Schedule
    costs: Costs
    begin: list[list[float]]
    end: list[list[float]]
    makespan: float
    busy: list[float]
    peaks: list[int]

    @property
    def bubbles(self) -> list[float]:
        """Idle time of each rank, from 0 to the makespan."""
        return [self.makespan - busy for busy in self.busy]

    @property
    def bubble(self) -> float:
        """The largest idle time."""
        return max(self.bubbles, default=0.0)

    @property
    def peak(self) -> int:
        """The largest number of chunks that are alive at once on one rank."""
        return max(self.peaks, default=0)


# Validity --------------------------------------------------------------------------------------


def validate(
    schedule: Schedule,
    stages: int | None = None,
    microbatches: int | None = None,
    placement: Placement | None = None,
) -> None:
    """Raise ``ScheduleError`` unless the schedule can run and does everything once.

    Each chunk has one F, and one B or one I and one W, all on one rank, which is the one that
    ``placement`` names; what an action needs is made before it; no ranks wait for one another for
    ever; the halves of an ``Overlapped`` are an F and a B or I of different chunks.

    Args:
        stages, microbatches: how many there must be; ``None``: as many as the schedule names.
        placement: where each chunk is to run; ``None``: anywhere.
    """
    named = count_chunks(schedule)
    stages = named[0] if stages is None else stages
    microbatches = named[1] if microbatches is None else microbatches
    homes = _check_actions(schedule, stages, microbatches, placement)
    _check_complete(homes, stages, microbatches)
    time_schedule(schedule)


def _check_actions(
    schedule: Schedule, stages: int, microbatches: int, placement: Placement | None
) -> dict[Action, tuple[int, int]]:
    """What every single step must obey; returns (rank, step) of every action."""
    homes: dict[Action, tuple[int, int]] = {}
    for rank, steps in enumerate(schedule):
        for index, step in enumerate(steps):
            here = f"rank {rank}, step {index} ({step})"
            if isinstance(step, Overlapped):
                _check_pair(step, here)
            for action in actions_of(step):
                kind, stage, microbatch = action
                if kind not in ("F", "B", "I", "W"):
                    raise ScheduleError("action", f"{here}: kind {kind!r} is none of F, B, I, W")
                if not (0 <= stage < stages and 0 <= microbatch < microbatches):
                    raise ScheduleError(
                        "action",
                        f"{here}: there are stages 0 … {stages - 1} and micro-batches 0 … "
                        f"{microbatches - 1}",
                    )
                if action in homes:
                    other, place = homes[action]
                    raise ScheduleError(
                        "twice", f"{here}: {action} is also step {place} of rank {other}"
                    )
                if placement is not None and placement(stage, microbatch) != rank:
                    raise ScheduleError(
                        "placement",
                        f"{here}: stage {stage} of micro-batch {microbatch} belongs on rank "
                        f"{placement(stage, microbatch)}",
                    )
                homes[action] = rank, index
    return homes


def _check_pair(step: Overlapped, here: str) -> None:
    forward, backward = step
    if forward.kind != "F" or backward.kind not in ("B", "I"):
        raise ScheduleError("pair", f"{here}: a pair is an F and a B or I, in this order")
    if forward[1:] == backward[1:]:
        raise ScheduleError("pair", f"{here}: both halves belong to the same chunk")


def _check_complete(homes: dict[Action, tuple[int, int]], stages: int, microbatches: int) -> None:
    for stage in range(stages):
        for microbatch in range(microbatches):
            found = {k: homes[a] for k in "FBIW" if (a := Action(k, stage, microbatch)) in homes}
            chunk = f"stage {stage} of micro-batch {microbatch}"
            if "F" not in found:
                raise ScheduleError("missing", f"{chunk} has no F")
            if "B" in found and len(found) > 2:
                extra = "I" if "I" in found else "W"
                rank, index = found[extra]
                raise ScheduleError(
                    "twice", f"{chunk} has a B and also {extra}: rank {rank}, step {index}"
                )
            if "B" not in found and ("I" not in found or "W" not in found):
                lacks = "W" if "I" in found else "I" if "W" in found else "backward (B, or I and W)"
                raise ScheduleError("missing", f"{chunk} has no {lacks}")
            ranks = {rank for rank, _ in found.values()}
            if len(ranks) > 1:
                raise ScheduleError(
                    "placement",
                    f"{chunk} is spread over ranks {sorted(ranks)}: its activations "
                    f"are on rank {found['F'][0]}",
                )


# Time ------------------------------------------------------------------------------------------


def time_schedule(schedule: Schedule, costs: Sequence[float] = Costs()) -> Timeline:
    """Run a schedule on paper.

    Args:
        costs: (F, I, W, FB).

    Raises:
        ScheduleError: ranks wait for one another for ever, or for what nobody makes.
    """
    costs = Costs(*costs)
    stages, _ = count_chunks(schedule)
    clock = _Clock(schedule, costs, stages)
    clock.run()
    end = clock.end
    makespan = max((times[-1] for times in end if times), default=0.0)
    busy = [sum(costs.of(step) for step in steps) for steps in schedule]
    peaks = [_peak(steps) for steps in schedule]
    return Timeline(schedule, costs, clock.begin, end, makespan, busy, peaks)


class _Clock:
    """Ranks run ahead until they need what is not there yet, and go on when it is made."""

    def __init__(self, schedule: Schedule, costs: Costs, stages: int) -> None:
        self.schedule, self.costs, self.last = schedule, costs, stages - 1
        self.begin: list[list[float]] = [[] for _ in schedule]
        self.end: list[list[float]] = [[] for _ in schedule]
        self._made: dict[tuple[str, int, int], float] = {}
        self._waiting: dict[tuple[str, int, int], list[int]] = {}

    def run(self) -> None:
        runnable = list(range(len(self.schedule)))
        while runnable:
            self._run_rank(runnable.pop(), runnable)
        if any(len(done) < len(steps) for done, steps in zip(self.end, self.schedule, strict=True)):
            raise _stuck(self.schedule, [len(done) for done in self.end], self._missing_of)

    def _run_rank(self, rank: int, runnable: list[int]) -> None:
        steps, begin, end = self.schedule[rank], self.begin[rank], self.end[rank]
        while len(end) < len(steps):
            step = steps[len(end)]
            time = end[-1] if end else 0.0
            for need in self._needs(step):
                made = self._made.get(need)
                if made is None:
                    self._waiting.setdefault(need, []).append(rank)
                    return
                time = max(time, made)
            begin.append(time)
            end.append(time + self.costs.of(step))
            for kind, stage, microbatch in actions_of(step):
                made_here = ("I" if kind == "B" else kind, stage, microbatch)
                self._made[made_here] = end[-1]
                runnable.extend(self._waiting.pop(made_here, ()))

    def _needs(self, step: Step) -> list[tuple[str, int, int]]:
        """What must have been made; "I" stands for a gradient of the inputs, by I or B."""
        needs: list[tuple[str, int, int]] = []
        for kind, stage, microbatch in actions_of(step):
            if kind == "F":
                if stage > 0:
                    needs.append(("F", stage - 1, microbatch))
            elif kind == "W":
                needs.append(("I", stage, microbatch))
            else:
                needs.append(("F", stage, microbatch))
                if stage < self.last:
                    needs.append(("I", stage + 1, microbatch))
        return needs

    def _missing_of(self, rank: int, index: int) -> tuple[str, int, int]:
        step = self.schedule[rank][index]
        return next(need for need in self._needs(step) if need not in self._made)


def _stuck(
    schedule: Schedule, done: list[int], missing_of: Callable[[int, int], tuple[str, int, int]]
) -> ScheduleError:
    """Follow who waits for whom from a rank that is stuck, until it closes or ends."""
    homes = {
        ("I" if action.kind == "B" else action.kind, *action[1:]): (rank, index)
        for rank, steps in enumerate(schedule)
        for index, step in enumerate(steps)
        for action in actions_of(step)
    }
    rank = next(r for r, steps in enumerate(schedule) if done[r] < len(steps))
    seen: list[int] = []
    lines: dict[int, str] = {}
    while rank not in seen:
        seen.append(rank)
        index = done[rank]
        need = missing_of(rank, index)
        step, name = schedule[rank][index], str(Action(*need))
        here = f"rank {rank}, step {index} ({step})"
        if need not in homes:
            return ScheduleError("missing", f"{here} waits for {name}, which no rank ever makes")
        other, place = homes[need]
        if other == rank:
            return ScheduleError(
                "order", f"{here} needs {name}, which comes later on the same rank: step {place}"
            )
        lines[rank] = f"{here} waits for {name}, which is step {place} of rank {other}"
        rank = other
    cycle = seen[seen.index(rank) :]
    return ScheduleError("deadlock", "deadlock: " + "; ".join(lines[r] for r in cycle))


def _peak(steps: Sequence[Step]) -> int:
    alive = peak = 0
    for step in steps:
        actions = actions_of(step)
        alive += sum(action.kind == "F" for action in actions)
        peak = max(peak, alive)
        alive -= sum(action.kind in "BW" for action in actions)
    return peak
