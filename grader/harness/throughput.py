"""Throughput as a ratio: two contenders in turn, on the same fresh inputs, every result verified.

The verdict is the median of baseline time ÷ student time over pairs of neighbouring steps. More
pairs are run while its spread leaves the points open, and whoever would lose points gets a second
look in fresh processes.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch

from grader.harness import clocks
from grader.harness.client import WorkerServer
from grader.harness.reply import Limits
from grader.harness.throughput_buffers import Layout
from grader.harness.throughput_world import Contender, TimedWorld, Turn
from grader.harness.worlds import WorldFailed, WorldOptions

_CONFIDENCE: Final = 0.95
_NARROW: Final = 0.05
_WARM_UPS: Final = 2

Inputs = list[dict[str, torch.Tensor]]


@dataclass(frozen=True)
class Problem:
    """What both contenders are to do in each step.

    layout: the buffers of every rank. make: fresh inputs, by rank and buffer. expect: from inputs
    to what `differs` needs. differs(expected, tensors): None when the buffers hold the result,
    else what is wrong, in one line that names the rank. least_nbytes: what the ranks together must
    send in a step; 0 when unknown.
    """

    layout: Layout
    make: Callable[[np.random.Generator], Inputs]
    expect: Callable[[Inputs], Any]
    differs: Callable[[Any, Inputs], str | None]
    least_nbytes: int = 0
    count: Callable[[Any, Inputs], int] | None = None


@dataclass(frozen=True)
class Plan:
    """How long to measure. floor, full: ratios that earn nothing and all.

    seconds: after these no further pair is begun once there are `least` of them.
    """

    floor: float
    full: float
    least: int = 7
    most: int = 41
    seconds: float = 20.0
    second_look: bool = True


@dataclass(frozen=True)
class Wrong:
    """A step whose result was not that of its inputs. step: from 1, warm-ups not counted."""

    step: int
    message: str
    cause: str | None = None


@dataclass
class Measurement:
    """What was measured. seconds: of both, pair by pair; ratios: baseline ÷ student.

    wrong: why the student's times count for nothing. looks: how often it was measured.
    alone: whether no other measurement ran on this machine.
    """

    student_seconds: list[float] = field(default_factory=list)
    baseline_seconds: list[float] = field(default_factory=list)
    wrong: Wrong | None = None
    replaced: list[str] = field(default_factory=list)
    looks: int = 1
    alone: bool = True

    @property
    def ratios(self) -> list[float]:
        """Baseline time ÷ student time, pair by pair."""
        pairs = zip(self.baseline_seconds, self.student_seconds, strict=False)
        return [baseline / student for baseline, student in pairs]

    @property
    def ratio(self) -> float:
        """The median of the ratios; 0 when nothing was measured or a result was wrong."""
        return statistics.median(self.ratios) if self.ratios and self.wrong is None else 0.0

    @property
    def spread(self) -> tuple[float, float]:
        """Between which values the true median lies, with 95 % confidence."""
        return median_interval(self.ratios) if self.ratios else (0.0, math.inf)

    def fraction(self, plan: Plan) -> float:
        """The share of the points: linear from the floor to the full mark."""
        return min(max((self.ratio - plan.floor) / (plan.full - plan.floor), 0.0), 1.0)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The order statistics that hold the median with 95 % confidence; all when too few."""
    ordered = sorted(values)
    count = len(ordered)
    place, tail = 0, 1 / 2**count  # the chance that the median lies below the smallest value
    while True:
        tail += math.comb(count, place + 1) / 2**count
        if 2 * tail > 1 - _CONFIDENCE or 2 * (place + 1) >= count:
            return ordered[place], ordered[count - 1 - place]
        place += 1


def settled(measurement: Measurement, plan: Plan) -> bool:
    """Whether more pairs would not change the points."""
    low, high = measurement.spread
    if low >= plan.full or high <= plan.floor:
        return True
    return high - low <= _NARROW * measurement.ratio


def compare(
    server: WorkerServer,
    student: Contender,
    baseline: Contender,
    problem: Problem,
    plan: Plan,
    *,
    limits: Limits | None = None,
    options: WorldOptions | None = None,
) -> Measurement:
    """Measure the student against the baseline.

    Raises `WorldFailed` when the student's world ends (its reply says how); RuntimeError when the
    baseline is wrong or fails, which is a fault of ours; WorkerServerError, TooFewGpus.
    """
    limits, options = limits or Limits(wall_seconds=20.0), options or WorldOptions()

    def attempt(running: Any) -> Measurement:
        running.ready()
        with clocks.turn() as alone, clocks.urgent():
            first = _look(running, student, baseline, problem, plan, limits, options)
            first.alone = alone
            if first.wrong is not None or first.replaced or first.fraction(plan) >= 1.0:
                return first
            if not plan.second_look:
                return first
            second = _look(running, student, baseline, problem, plan, limits, options)
            second.alone = alone
            better = second if second.wrong or second.ratio > first.ratio else first
            better.looks = 2
            better.replaced = first.replaced or second.replaced
            return better

    return server.lend(attempt)


def _look(
    server: Any,
    student: Contender,
    baseline: Contender,
    problem: Problem,
    plan: Plan,
    limits: Limits,
    options: WorldOptions,
) -> Measurement:
    rng = np.random.Generator(np.random.SFC64())  # seeded by the system: nobody knows the inputs
    measurement = Measurement()
    with (
        TimedWorld(server, student, problem.layout, limits, options) as ours,
        _of_ours(server, baseline, problem.layout, limits, options) as theirs,
    ):
        earlier: list[Any] = []
        began = time.monotonic()
        pair = -_WARM_UPS
        while pair < plan.most:
            inputs = problem.make(rng)
            expected = problem.expect(inputs)
            turns: dict[str, Turn] = {}
            for world in (ours, theirs) if pair % 2 else (theirs, ours):
                fill(world, inputs)
                turn = world.step()
                turns[world.contender.name] = turn
                wrong = problem.differs(expected, world.tensors)
                if wrong is not None and world is theirs:
                    raise RuntimeError(f"the baseline of this measurement is wrong: {wrong}")
                if wrong is None and world is ours and not world.cuda:
                    wrong = _too_little(turn, problem)
                if wrong is not None:
                    cause = _cause(problem, inputs, earlier, ours.tensors)
                    measurement.wrong = Wrong(max(pair + 1, 1), wrong, cause)
                    break
            if measurement.wrong is not None:
                break
            earlier = [expected]
            if pair >= 0:
                measurement.student_seconds.append(turns[student.name].seconds)
                measurement.baseline_seconds.append(turns[baseline.name].seconds)
                if pair + 1 >= plan.least and (
                    settled(measurement, plan) or time.monotonic() - began > plan.seconds
                ):
                    break
            pair += 1
        measurement.replaced = _replaced(ours)
    return measurement


def _of_ours(
    server: Any, baseline: Contender, layout: Layout, limits: Limits, options: WorldOptions
) -> TimedWorld:
    try:
        return TimedWorld(server, baseline, layout, limits, options)
    except WorldFailed as failed:
        raise RuntimeError(f"the baseline of this measurement failed: {failed}") from failed


def fill(world: TimedWorld, inputs: Inputs) -> None:
    """Write inputs into the buffers of a world that stands still; NaN where results are to come."""
    for tensors, given in zip(world.tensors, inputs, strict=True):
        for name, tensor in tensors.items():
            if name in given:
                tensor.copy_(given[name])
            elif tensor.dtype.is_floating_point:
                tensor.fill_(math.nan)
            else:
                tensor.fill_(1)


def _too_little(turn: Turn, problem: Problem) -> str | None:
    """Whether the data went another way than through the network."""
    if turn.sent_nbytes is None or turn.sent_nbytes >= problem.least_nbytes:
        return None
    return (
        f"the ranks sent {turn.sent_nbytes} bytes over the network, and cannot do with less than "
        f"{problem.least_nbytes}"
    )


def _cause(problem: Problem, inputs: Inputs, earlier: Sequence[Any], tensors: Inputs) -> str | None:
    """The likely cause of a wrong result: nothing was done, or something was kept."""
    for expected in earlier:
        if problem.differs(expected, tensors) is None:
            return "it handed out the result of an earlier call"
    unchanged = [
        all(torch.equal(there[name], given[name]) for name in given)
        for given, there in zip(inputs, tensors, strict=True)
    ]
    outputs = [t for there in tensors for name, t in there.items() if name not in inputs[0]]
    untouched = all(bool(torch.isnan(t).all()) for t in outputs if t.dtype.is_floating_point)
    if all(unchanged) and untouched:
        return "nothing was done in this call: results kept from, or work done in, another one"
    return None


def _replaced(world: TimedWorld) -> list[str]:
    """Names of the functions that the student's code replaced, on any rank."""
    names: set[str] = set()
    for value in world.finish().values:
        if isinstance(value, dict):
            names.update(str(name) for name in value.get("replaced", []))
    return sorted(names)
