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
    raise NotImplementedError("a6.gpipe_schedule")


def one_f_one_b_schedule(stages: int, microbatches: int) -> Schedule:
    """One forward, one backward [Narayanan et al. 2021, Megatron-LM, section 2.2].

    Bubble (p - 1)(F + B) as GPipe's, but rank r keeps only min(p - r, m) micro-batches alive.
    Rank r holds stage r. Any m >= 1, also m < p.

    Raises:
        ValueError: ``stages`` or ``microbatches`` is below 1.
    """
    raise NotImplementedError("a6.one_f_one_b_schedule")


def interleaved_schedule(ranks: int, microbatches: int, chunks: int) -> Schedule:
    """1F1B with several stages a rank [Narayanan et al. 2021, Megatron-LM, section 2.2].

    Rank r holds stages r, r + p, r + 2p, …, ``chunks`` of them (v). The bubble is (p - 1)(F + B) in
    times of one chunk, which are v times shorter than those of a rank's whole share; rank r keeps
    at most (v - 1)p + 2(p - 1 - r) + 1 chunks alive.

    Raises:
        ValueError: an argument is below 1, or ``microbatches`` is no multiple of ``ranks``.
    """
    raise NotImplementedError("a6.interleaved_schedule")


def zero_bubble_schedule(stages: int, microbatches: int) -> Schedule:
    """ZB1P: weight gradients wait until there is nothing better to do [Qi et al. 2023, ZB-H1].

    For m >= p the bubble is (p - 1) max(F, I, F + I - W), for m < p the makespan at most 1F1B's; no
    rank keeps more than min(p, m) micro-batches alive. Rank r holds stage r.

    Raises:
        ValueError: ``stages`` or ``microbatches`` is below 1.
    """
    raise NotImplementedError("a6.zero_bubble_schedule")


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
    raise NotImplementedError("a6.bubble_ratio")
