"""Times of several contenders on one problem, in turn, with the number of wrong elements of each.

For tables; for points see `throughput`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grader.harness import clocks
from grader.harness.client import WorkerServer
from grader.harness.reply import Limits
from grader.harness.throughput import Problem, fill
from grader.harness.throughput_world import Contender, TimedWorld
from grader.harness.worlds import WorldFailed, WorldOptions, WorldReply


@dataclass
class Series:
    """seconds: of each round. wrong: elements over all rounds. failure: how its world ended."""

    seconds: list[float] = field(default_factory=list)
    wrong: int = 0
    failure: WorldReply | None = None

    @property
    def median(self) -> float:
        """Median of the seconds; NaN when there are none."""
        return statistics.median(self.seconds) if self.seconds else float("nan")


def measure(
    server: WorkerServer,
    contenders: Sequence[Contender],
    problem: Problem,
    rounds: int,
    *,
    repeats: int = 1,
    warm_ups: int = 2,
    limits: Limits | None = None,
    options: WorldOptions | None = None,
) -> list[Series]:
    """Let every contender solve the problem `rounds` times, all on the same inputs in a round.

    repeats: steps in a row behind each time, which is divided by it, so that starting and stopping
    the world does not count; then a single step is verified beside it, else the timed one.
    One whose world fails drops out. Raises WorkerServerError, TooFewGpus.
    """
    limits, options = limits or Limits(wall_seconds=60.0), options or WorldOptions()

    def attempt(running: Any) -> list[Series]:
        running.ready()
        series = [Series() for _ in contenders]
        rng = np.random.Generator(np.random.SFC64())
        with clocks.turn(), clocks.urgent(), ExitStack() as stack:
            worlds: list[TimedWorld | None] = []
            for contender, result in zip(contenders, series, strict=True):
                try:
                    world = TimedWorld(running, contender, problem.layout, limits, options)
                    worlds.append(stack.enter_context(world))
                except WorldFailed as failed:
                    result.failure = failed.reply
                    worlds.append(None)
            for number in range(-warm_ups, rounds):
                inputs = problem.make(rng)
                expected = problem.expect(inputs)
                for place, result in enumerate(series):
                    timed = worlds[place]
                    if timed is None:
                        continue
                    try:
                        fill(timed, inputs)
                        seconds = timed.step(repeats).seconds / repeats
                        if repeats > 1:
                            fill(timed, inputs)
                            timed.step()
                    except WorldFailed as failed:
                        result.failure = failed.reply
                        worlds[place] = None
                        continue
                    result.wrong += wrong_elements(problem, expected, timed)
                    if number >= 0:
                        result.seconds.append(seconds)
        return series

    return server.lend(attempt)


def wrong_elements(problem: Problem, expected: Any, world: TimedWorld) -> int:
    """How many elements of the buffers are wrong; 1 for any number where nobody counts them."""
    if problem.differs(expected, world.tensors) is None:
        return 0
    return 1 if problem.count is None else problem.count(expected, world.tensors)
