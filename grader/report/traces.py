"""The traces of a run that a page draws: for each task one of its many, the one that shows most.

The checks run a task in worlds of many sizes, often with several cases in a row. A picture wants
few ranks, few steps and large messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from grader.checks import world
from grader.fabric.cluster import uniform
from grader.fabric.record_io import record_from_columns
from grader.fabric.trace import TimedTrace, Trace

LATENCY = 2e-6
#: The largest message takes so many latencies, so that both can be seen.
LARGEST_MESSAGE = 5.0
_RANKS = 4
_STEPS = 40  # per rank; more are hard to follow

Run = dict[str, Any]


@dataclass(frozen=True)
class Drawn:
    """A task's trace on the cluster it is drawn for. failed: the run ended with a fault."""

    task: str
    timed: TimedTrace
    failed: str


class TraceKeeper:
    """Listens to the runs of checks while it is entered, and keeps the best of each task."""

    def __init__(self) -> None:
        self._best: dict[str, tuple[tuple[float, ...], Run]] = {}

    def __enter__(self) -> Self:
        world.RUN_LISTENERS.append(self._heard)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        world.RUN_LISTENERS.remove(self._heard)

    def _heard(self, task: str, run: Run) -> None:
        worth = _worth(run)
        if worth is not None and (task not in self._best or worth < self._best[task][0]):
            self._best[task] = worth, run

    def drawn(self) -> Mapping[str, Drawn]:
        """By task id; tasks that sent nothing have none."""
        return {task: _drawn(task, run) for task, (_, run) in self._best.items()}


def _worth(run: Run) -> tuple[float, ...] | None:
    """The smaller, the better to draw; None when nothing was sent."""
    columns = run["record"]
    if columns is None or not len(columns["op_rank"]):
        return None
    ranks = columns["world_size"]
    steps = len(columns["op_rank"]) / ranks
    faulty = any(finding["kind"] != "exception" for finding in run["findings"])
    return (
        0.0 if faulty else 1.0,  # what went wrong is what one wants to see
        0.0 if steps <= _STEPS else steps,
        0.0 if ranks > 1 else 1.0,
        abs(ranks - _RANKS),
        -float(columns["op_nbytes"].sum()),
    )


def _drawn(task: str, run: Run) -> Drawn:
    trace = Trace(record_from_columns(run["record"]))
    record = trace.record
    largest = max((op.nbytes for op in record.operations), default=0)
    bandwidth = max(largest, 1) / (LARGEST_MESSAGE * LATENCY)
    flops = max(sum(event.flops for event in program) for program in record.events)
    # Computation and communication of like length: neither hides in the width of a line.
    moving = max(trace.bytes_sent, default=0) / bandwidth + LATENCY * trace.rounds
    cluster = uniform(
        record.world_size,
        LATENCY,
        bandwidth,
        flops=flops / moving if flops and moving else 100e12,
        memory_bandwidth=1e18 if flops else 2e12,
    )
    kinds = [finding["kind"] for finding in run["findings"] if finding["kind"] != "exception"]
    return Drawn(task, trace.on(cluster), kinds[0] if kinds else "")
