"""The schedules of the literature before DualPipe: GPipe, 1F1B, interleaved 1F1B, ZB1P.

All return a `Schedule`: one list of steps per rank. p: ranks, m: micro-batches, F and B: times of
one chunk's forward and whole backward, B = I + W.
"""

from __future__ import annotations

from collections.abc import Sequence

from .schedule import Action, Schedule, Step
from .timeline import time_schedule


def gpipe_schedule(stages: int, microbatches: int) -> Schedule:
    """All forwards, then all backwards [Huang et al. 2018, GPipe].

    Bubble (p - 1)(F + B); every rank keeps all m micro-batches alive. Rank r holds stage r.

    Raises:
        ValueError: ``stages`` or ``microbatches`` is below 1.
    """
    # BEGIN SOLUTION
    _check_counts(stages=stages, microbatches=microbatches)
    return [
        [Action(kind, stage, i) for kind in "FB" for i in range(microbatches)]
        for stage in range(stages)
    ]
    # END SOLUTION


def one_f_one_b_schedule(stages: int, microbatches: int) -> Schedule:
    """One forward, one backward [Narayanan et al. 2021, Megatron-LM, section 2.2].

    Bubble (p - 1)(F + B) as GPipe's, but rank r keeps only min(p - r, m) micro-batches alive.
    Rank r holds stage r. Any m >= 1, also m < p.

    Raises:
        ValueError: ``stages`` or ``microbatches`` is below 1.
    """
    # BEGIN SOLUTION
    _check_counts(stages=stages, microbatches=microbatches)
    schedule: Schedule = []
    for stage in range(stages):
        forwards = [Action("F", stage, i) for i in range(microbatches)]
        backwards = [Action("B", stage, i) for i in range(microbatches)]
        schedule.append(_alternate(forwards, backwards, warm_up=stages - 1 - stage))
    return schedule
    # END SOLUTION


def interleaved_schedule(ranks: int, microbatches: int, chunks: int) -> Schedule:
    """1F1B with several stages a rank [Narayanan et al. 2021, Megatron-LM, section 2.2].

    Rank r holds stages r, r + p, r + 2p, …, ``chunks`` of them (v). The bubble is (p - 1)(F + B) in
    times of one chunk, which are v times shorter than those of a rank's whole share; rank r keeps
    at most (v - 1)p + 2(p - 1 - r) + 1 chunks alive.

    Raises:
        ValueError: an argument is below 1, or ``microbatches`` is no multiple of ``ranks``.
    """
    # BEGIN SOLUTION
    _check_counts(ranks=ranks, microbatches=microbatches, chunks=chunks)
    if microbatches % ranks:
        raise ValueError(f"microbatches={microbatches} is no multiple of ranks={ranks}")
    # Groups of p micro-batches go through one chunk after the other.
    order = [
        (chunk, first + i)
        for first in range(0, microbatches, ranks)
        for chunk in range(chunks)
        for i in range(ranks)
    ]
    schedule: Schedule = []
    for rank in range(ranks):
        forwards = [Action("F", chunk * ranks + rank, i) for chunk, i in order]
        backwards = [Action("B", (chunks - 1 - chunk) * ranks + rank, i) for chunk, i in order]
        warm_up = (chunks - 1) * ranks + 2 * (ranks - 1 - rank)
        if chunks == 1:
            warm_up //= 2  # without a second chunk to fill with, this is plain 1F1B
        schedule.append(_alternate(forwards, backwards, warm_up))
    return schedule
    # END SOLUTION


def zero_bubble_schedule(stages: int, microbatches: int) -> Schedule:
    """ZB1P: weight gradients wait until there is nothing better to do [Qi et al. 2023, ZB-H1].

    For m >= p the bubble is (p - 1) max(F, I, F + I - W), for m < p the makespan at most 1F1B's; no
    rank keeps more than min(p, m) micro-batches alive. Rank r holds stage r.

    Raises:
        ValueError: ``stages`` or ``microbatches`` is below 1.
    """
    # BEGIN SOLUTION
    _check_counts(stages=stages, microbatches=microbatches)
    schedule: Schedule = []
    for stage in range(stages):
        forwards = [Action("F", stage, i) for i in range(microbatches)]
        gradients = [Action("I", stage, i) for i in range(microbatches)]
        steps: list[Step] = []
        weights = 0
        # The further down, the earlier its first backward, and the more W a rank may put off
        # before it has as many micro-batches alive as rank 0.
        for step in _alternate(forwards, gradients, warm_up=stages - 1 - stage):
            steps.append(step)
            if step.kind == "I" and step.microbatch - weights >= stage:
                steps.append(Action("W", stage, weights))
                weights += 1
        steps += [Action("W", stage, i) for i in range(weights, microbatches)]
        schedule.append(steps)
    return schedule
    # END SOLUTION


def bubble_ratio(schedule: Schedule, costs: Sequence[float]) -> float:
    """The largest idle time of any rank, as a fraction of the makespan.

    Args:
        schedule: a valid schedule, of any kind.
        costs: (F, I, W, FB), as `timeline.Costs`.

    Returns:
        A number from 0 to 1; 0 for a schedule of no steps.

    Raises:
        ScheduleError (a ValueError): the schedule cannot run.
    """
    # BEGIN SOLUTION
    timeline = time_schedule(schedule, costs)
    return timeline.bubble / timeline.makespan if timeline.makespan else 0.0
    # END SOLUTION


# BEGIN SOLUTION
def _alternate(
    forwards: Sequence[Action], backwards: Sequence[Action], warm_up: int
) -> list[Action]:
    """``warm_up`` forwards, then one forward and one backward in turn, then the last backwards."""
    warm_up = min(warm_up, len(forwards))
    steps = list(forwards[:warm_up])
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        steps += [forward, backward]
    return steps + list(backwards[len(forwards) - warm_up :])


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name}={count}: expected at least 1")


# END SOLUTION
