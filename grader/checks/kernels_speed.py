"""Speed of kernels: percent of the copy bandwidth measured in the same run. Needs a GPU."""

from __future__ import annotations

import statistics

import pytest

from grader.checks.framework import Award, CheckFailed
from grader.checks.kernels_run import KernelRunner, speed_problem

FLOOR = 0.4  # of the copy bandwidth: nothing is earned up to here
MOST = 1.5  # what reads more than it writes may be somewhat faster than a copy
NBYTES = 512 << 20


def judge_speed(kernels: KernelRunner, award: Award, task: str, *names: str, full: float) -> None:
    """Award what the slowest of the kernels `names` deserves: all from `full` × copy bandwidth on.

    Skips without a GPU, or with --no-throughput.
    """
    if (problem := speed_problem(kernels.settings)) is not None:
        pytest.skip(problem)
    worst, told = 1.0, []
    for name in names:
        ratio = _measure(kernels, task, name)
        if ratio < full:  # a second look before anyone loses points
            ratio = max(ratio, _measure(kernels, task, name))
        kernels.metrics[f"{name}_of_copy"] = ratio
        told.append(f"{name} moves data at {ratio:.0%} of a copy's bandwidth")
        worst = min(worst, max(0.0, min(1.0, (ratio - FLOOR) / (full - FLOOR))))
    award(worst, f"{'; '.join(told)}; full marks from {full:.0%} on, none below {FLOOR:.0%}")


def _measure(kernels: KernelRunner, task: str, name: str) -> float:
    found = kernels.speed(task, {"kernel": name, "nbytes": NBYTES, "repeats": 11})
    if not found["agrees"]:
        raise CheckFailed(f"{name}: its result on the timed operands is wrong")
    pairs = zip(found["copy_seconds"], found["seconds"], strict=True)
    ratio = float(statistics.median(copy / own for copy, own in pairs))
    if ratio > MOST:
        raise CheckFailed(
            f"{name} takes less time than its bytes need: {ratio:.0%} of a copy's bandwidth",
            cause="not all of the work is done in each launch",
        )
    return ratio
