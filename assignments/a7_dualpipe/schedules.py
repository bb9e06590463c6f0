"""DualPipe and DualPipeV: micro-batches from both ends, forwards and backwards overlapped.

The shape of both is told in [DeepSeek-AI 2024, DeepSeek-V3 Technical Report, section 3.2.1 and
figure 5], the cut into a V in [Qi, Wan, Huang, Lin 2025, DualPipe could be better without the
Dual].
"""

from __future__ import annotations

from collections.abc import Sequence

from ..a6_pipeline_parallel.schedule import Action, Overlapped, Schedule, Step
from ..a6_pipeline_parallel.timeline import time_schedule


def dualpipe_schedule(
    ranks: int, microbatches: int, costs: Sequence[float] | None = None
) -> Schedule:
    """Two pipelines in opposite directions through the same ranks.

    Rank r holds stages r and p - 1 - r. Micro-batches 0 … m/2 - 1 enter at rank 0 and see stage s
    on rank s, the others enter at rank p - 1 and see stage s on rank p - 1 - s. The halves of an
    ``Overlapped`` pair belong to different micro-batches and directions.

    With k = p/2 - 1 and n = min(I, W) the makespan is at most
    m(F + B) - (m - p - 1)(F + B - FB) + max(k(FB + F - W - n), k(FB + I - W - n) - F, 0), and no
    rank keeps more than p + 1 chunks alive.

    Args:
        ranks: p, even. microbatches: m in both directions together, even.
        costs: (F, I, W, FB), if they are known: then a schedule that takes less time at them, with
            no more activations, may be returned in place of the published one. Optional; nothing
            is graded with it.

    Raises:
        ValueError: ``ranks`` is odd or below 2, ``microbatches`` odd or below 2 ``ranks``.
    """
    raise NotImplementedError("a7.dualpipe_schedule")


def dualpipev_schedule(ranks: int, microbatches: int) -> Schedule:
    """DualPipe cut in half: one direction, down the ranks and up again.

    Rank r holds stages r and 2p - 1 - r. All micro-batches enter at rank 0 and leave there. With
    PP = 2p and M = 2m the makespan and the peak are those of DualPipe, but every stage exists once.

    Raises:
        ValueError: ``ranks`` is below 1, or ``microbatches`` below 2 ``ranks``.
    """
    raise NotImplementedError("a7.dualpipev_schedule")
