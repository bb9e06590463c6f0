"""Running a schedule on real ranks.

A schedule says what each rank does in which order, not who talks to whom when. Two things can go
wrong there. Sends wait for their receivers, so a rank that insists on sending while its neighbour
insists on sending too waits for ever. And messages have no names: the n-th message from a to b
fills the n-th receive that b posted for a, whatever the two were meant to be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .schedule import Overlapped, Schedule, actions_of, count_chunks
from .stage import PipelineStage
from .timeline import validate
from .wire import Signature, make_room, signature_of

Tensors = tuple[torch.Tensor, ...]
Gradients = tuple[torch.Tensor | None, ...]
#: Runs the halves of a pair (F and B): (stage, micro-batch, inputs) of the forward, (stage,
#: micro-batch, gradients) of the backward -> (outputs, gradients of the inputs).
RunPair = Callable[
    [tuple[PipelineStage, int, Tensors], tuple[PipelineStage, int, Gradients]],
    tuple[torch.Tensor | Tensors, Gradients],
]


def run_schedule(
    schedule: Schedule,
    stages: Mapping[int, PipelineStage],
    inputs: Sequence[torch.Tensor | Tensors | None] | None,
    targets: Sequence[Any] | None,
    loss_fn: Callable[[Any, Any], torch.Tensor],
    group: dist.ProcessGroup | None = None,
    run_pair: RunPair | None = None,
) -> torch.Tensor | None:
    """Run one batch through a pipeline: forwards, losses, backwards, as the schedule says.

    Gradients are added to the parameters' ``.grad``: those of the mean over all micro-batches of
    ``loss_fn(output of the last stage, target)``. Any valid schedule runs, also where sends wait
    for their receivers and messages have no tags.

    Args:
        schedule: the whole schedule, the same on all ranks; list r is of group rank r.
        stages: this rank's stages, by number.
        inputs: on ranks that run the first stage, one tensor (or a tuple of tensors) per
            micro-batch; entries that enter elsewhere, and other ranks' ``inputs``, may be ``None``.
        targets: on ranks that run the last stage, one per micro-batch; otherwise as ``inputs``.
        loss_fn: (output, target) -> scalar.
        group: the ranks of the pipeline; ``None`` is the default group.
        run_pair: runs the two halves of an ``Overlapped`` step together; default: one by one.

    Returns:
        The mean loss over the micro-batches whose last stage is here (detached), else ``None``.

    Raises:
        ValueError: the schedule is not valid, or for another number of ranks; a stage, an input or
            a target that this rank needs is missing.
    """
    raise NotImplementedError("a6.run_schedule")
