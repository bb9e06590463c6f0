"""Running DualPipe: two copies of every stage, whose gradients belong together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..a6_pipeline_parallel.executor import run_schedule
from ..a6_pipeline_parallel.schedule import Schedule, actions_of, count_chunks
from ..a6_pipeline_parallel.stage import PipelineStage
from .overlap import overlapped_forward_backward
from .phases import PhasedStage

Stage = PipelineStage | PhasedStage


def run_dualpipe(
    schedule: Schedule,
    stages: Mapping[int, Stage],
    inputs: Sequence[torch.Tensor | None] | None,
    targets: Sequence[Any] | None,
    loss_fn: Callable[[Any, Any], torch.Tensor],
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor | None:
    """Run one batch through a pipeline whose stages may exist twice, as `run_schedule` does.

    After it the gradients of both copies of a stage are the sum of what the two have seen; what
    stood in ``.grad`` before is kept and added to, once. The halves of a pair of `PhasedStage`s
    run overlapped.

    Args:
        schedule: of `dualpipe_schedule`, `dualpipev_schedule`, or any valid one in which a stage
            lives on at most two ranks.
        stages: this rank's stages, by number; the copies of a stage hold the same weights.
        inputs: on both end ranks, one tensor per micro-batch; those of the other direction are
            ``None``.
        targets: on ranks that run the last stage, likewise.
        loss_fn: (output, target) -> scalar.
        group: the ranks of the pipeline; ``None`` is the default group.

    Returns:
        The mean loss over all micro-batches (detached) on every rank that runs the last stage,
        else ``None``.

    Raises:
        ValueError: as `run_schedule`.
    """
    raise NotImplementedError("a7.run_dualpipe")
