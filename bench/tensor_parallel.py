"""Tensor-parallel MLP and attention against `parallelize_module`: one step, as a ratio of speeds.

The reference's layers and DTensor's on real processes (gloo), forward and backward, 2 and 4 ranks;
measured as the throughput checks measure. Above 1 the reference is faster.
"""

from __future__ import annotations

import statistics

from grader.checks import a4_throughput, workers
from grader.checks.settings import solution_folder
from grader.checks.throughput import PREPARE
from grader.harness import Limits
from grader.harness.throughput import Plan, compare
from grader.harness.throughput_world import Contender

PAIRS = 21


def measure(task: str, ranks: int) -> str:
    """One row of the table."""
    timed = a4_throughput.problem(task, ranks)
    folder = str(solution_folder("reference"))
    own = {"seed": 0, "driver": "timed_tensor:parallel", "folder": folder}
    theirs = {"seed": 0, "driver": "timed_tensor:library", "folder": None}
    measured = compare(
        workers.server(),
        Contender("student", PREPARE, [{**own, "given": each} for each in timed.given]),
        Contender("baseline", PREPARE, [{**theirs, "given": each} for each in timed.given]),
        timed.problem,
        Plan(0.0, 1e9, least=PAIRS, most=PAIRS, second_look=False),
        limits=Limits(wall_seconds=120, memory_bytes=8 << 30),
    )
    if measured.wrong is not None:
        raise SystemExit(f"{task}: {measured.wrong.message}")
    low, high = measured.spread
    seconds = statistics.median(measured.student_seconds)
    baseline = statistics.median(measured.baseline_seconds)
    return (
        f"{task:22} {ranks:>5} {measured.ratio:>6.2f}  {low:.2f} … {high:.2f}  "
        f"{seconds * 1e3:>8.1f} {baseline * 1e3:>10.1f}"
    )


def main() -> None:
    """Print a row for each layer and number of ranks."""
    print(f"(sequence, batch, hidden) = {a4_throughput.SHAPES['cpu']}, float32, forward + backward")
    head = f"{'task':22} {'ranks':>5} {'ratio':>6}  {'95 % of it':11}"
    print(f"{head}  {'ours ms':>8} {'DTensor ms':>10}")
    workers.start()
    try:
        for task in a4_throughput.MODULES:
            for ranks in (2, 4):
                print(measure(task, ranks), flush=True)
    finally:
        workers.stop()
