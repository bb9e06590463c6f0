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
    # BEGIN SOLUTION
    copies = _Copies(schedule, stages, group)
    before = copies.put_gradients_aside()
    try:
        loss = run_schedule(schedule, stages, inputs, targets, loss_fn, group, run_pair=_run_pair)
        copies.sum_gradients()
        loss = copies.mean_loss(loss)
    finally:
        for parameter, gradient in before:
            if parameter.grad is not None:
                gradient.add_(parameter.grad)
            parameter.grad = gradient
    return loss
    # END SOLUTION


# BEGIN SOLUTION
def _run_pair(
    forward: tuple[Stage, int, tuple[torch.Tensor, ...]],
    backward: tuple[Stage, int, tuple[torch.Tensor | None, ...]],
) -> tuple[Any, tuple[torch.Tensor | None, ...]]:
    stage, microbatch, inputs = forward
    other, back, gradients = backward
    if not (isinstance(stage, PhasedStage) and isinstance(other, PhasedStage)):
        return stage.forward(microbatch, *inputs), other.backward(back, *gradients)
    there = stage.forward_phases(microbatch, *inputs)
    home = other.backward_phases(back, *gradients)
    overlapped_forward_backward(there, home)
    return there.result(), home.result()


class _Copies:
    """The ranks that hold copies of this rank's stages, and what is exchanged with them."""

    def __init__(
        self, schedule: Schedule, stages: Mapping[int, Stage], group: dist.ProcessGroup | None
    ) -> None:
        self._group, self._rank = group, dist.get_rank(group)
        homes: dict[int, set[int]] = {}
        self._last = count_chunks(schedule)[0] - 1
        self._counts = [0] * len(schedule)  # micro-batches whose last stage a rank runs
        for rank, steps in enumerate(schedule):
            for kind, stage, _ in (action for step in steps for action in actions_of(step)):
                homes.setdefault(stage, set()).add(rank)
                self._counts[rank] += kind == "F" and stage == self._last
        mine: dict[int, list[int]] = {}
        for stage, ranks in sorted(homes.items()):
            if len(ranks) > 2:
                raise ValueError(f"schedule: stage {stage} is on more than two ranks: {ranks}")
            if self._rank in ranks and len(ranks) == 2:
                (other,) = ranks - {self._rank}
                mine.setdefault(other, []).append(stage)
        self._parameters = {
            other: _parameters(stages[stage] for stage in numbers)
            for other, numbers in sorted(mine.items())
        }
        self._other_end = next(
            (rank for rank in homes.get(self._last, ()) if rank != self._rank), self._rank
        )

    def put_gradients_aside(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """What earlier calls have summed must not be summed again."""
        before = []
        for parameter in (p for parameters in self._parameters.values() for p in parameters):
            if parameter.grad is not None:
                before.append((parameter, parameter.grad))
                parameter.grad = None
        return before

    def sum_gradients(self) -> None:
        """Both copies get the sum; a parameter that neither used keeps no gradient."""
        for other, parameters in self._parameters.items():
            used = torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8)
            (used_there,) = self._exchange([used.to(_device(self._group))], other)
            either = (used | used_there.cpu()).tolist()
            shared = [p for p, anywhere in zip(parameters, either, strict=True) if anywhere]
            for p in shared:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            received = self._exchange([p.grad for p in shared], other)
            for p, gradient in zip(shared, received, strict=True):
                p.grad.add_(gradient)  # a + b here is b + a there: the same bits

    def mean_loss(self, loss: torch.Tensor | None) -> torch.Tensor | None:
        """From the mean over a rank's own micro-batches to that over all."""
        if loss is None or self._other_end == self._rank:
            return loss
        here, there = self._counts[self._rank], self._counts[self._other_end]
        (other,) = self._exchange([loss.reshape(1)], self._other_end)
        return (loss * here + other.reshape(()) * there) / (here + there)

    def _exchange(self, tensors: Sequence[torch.Tensor], other: int) -> list[torch.Tensor]:
        """Tensors of the same shapes go there and come back from there, all at once."""
        sent = [tensor.contiguous() for tensor in tensors if tensor.numel()]
        received = [torch.empty_like(tensor) for tensor in sent]
        calls = [dist.P2POp(dist.isend, t, group=self._group, group_peer=other) for t in sent]
        calls += [dist.P2POp(dist.irecv, t, group=self._group, group_peer=other) for t in received]
        for work in dist.batch_isend_irecv(calls) if calls else ():
            work.wait()
        results = iter(received)
        return [next(results) if tensor.numel() else tensor for tensor in tensors]


def _parameters(stages: Any) -> list[torch.nn.Parameter]:
    """Those that are trained, each once, in an order that is the same for all copies."""
    found = [p for stage in stages for p in stage.module.parameters() if p.requires_grad]
    return list(dict.fromkeys(found))


def _device(group: dist.ProcessGroup | None) -> str:
    return "cuda" if dist.get_backend(group) == "nccl" else "cpu"


# END SOLUTION
