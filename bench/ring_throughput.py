"""The reference's ring all-reduces against gloo's `all_reduce`: a ratio of speeds, and its spread.

Every row is the median of at least 20 pairs, measured as the throughput checks measure: fresh
inputs, verified results, the examiner's clock. Above 1 the ring is faster than gloo.
"""

from __future__ import annotations

import statistics

from grader.checks import problems, workers
from grader.checks.settings import solution_folder
from grader.checks.throughput import PREPARE
from grader.harness import Limits
from grader.harness.throughput import Plan, compare
from grader.harness.throughput_world import Contender

RANKS = (2, 4, 8)
MEBIBYTES = (1, 16, 64)
PAIRS = 21
TASKS = ("a2.ring_all_reduce", "a2.pipelined_ring_all_reduce")


def measure(task: str, ranks: int, nbytes: int, pairs: int = PAIRS) -> str:
    """One row of the table."""
    timed = problems.all_reduce(ranks, nbytes, given=task)
    folder = str(solution_folder("reference"))
    common = {"seed": 0, "given": task}
    ring = {**common, "driver": "timed:all_reduce", "folder": folder}
    gloo = {**common, "driver": "timed:library_all_reduce", "folder": None}
    measured = compare(
        workers.server(),
        Contender("student", PREPARE, [ring] * ranks, "p2p"),
        Contender("baseline", PREPARE, [gloo] * ranks),
        timed.problem,
        Plan(0.0, 1e9, least=pairs, most=pairs, second_look=False),
        limits=Limits(wall_seconds=120, memory_bytes=8 << 30),
    )
    if measured.wrong is not None:
        raise SystemExit(f"{task}: {measured.wrong.message}")
    low, high = measured.spread
    seconds = statistics.median(measured.student_seconds)
    theirs = statistics.median(measured.baseline_seconds)
    busbw = nbytes / seconds * 2 * (ranks - 1) / ranks
    return (
        f"{task:30} {ranks:>5} {nbytes >> 20:>6} {measured.ratio:>6.2f}  {low:.2f} … {high:.2f}  "
        f"{seconds * 1e3:>8.1f} {theirs * 1e3:>8.1f} {busbw / 1e9:>7.2f}"
    )


def main() -> None:
    """Print a row for each task, number of ranks and size."""
    print(
        f"{'task':30} {'ranks':>5} {'MiB':>6} {'ratio':>6}  {'95 % of it':11}  "
        f"{'ring ms':>8} {'gloo ms':>8} {'busbw':>7}"
    )
    workers.start()
    try:
        for task in TASKS:
            for ranks in RANKS:
                for mebibytes in MEBIBYTES:
                    print(measure(task, ranks, mebibytes << 20), flush=True)
    finally:
        workers.stop()
