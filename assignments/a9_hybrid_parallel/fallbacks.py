"""Given: each layer that `train` needs, on torch's own modules, for whoever lacks a working one.

Same names and calls as in assignments 3 to 8, so that `parts.py` can put one in the place of
another. They are made to be right and short, not fast: gradients are averaged after backward,
logits are gathered, every rank of an expert group sees all its tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.func import functional_call
from torch.nn import functional as F

Group = dist.ProcessGroup


class DistributedDataParallel(nn.Module):
    """For a3's: gradients averaged in one message, after backward."""

    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module, self._group = module, group

    def forward(self, *inputs: Any) -> Any:
        """``module(*inputs)``."""
        return self.module(*inputs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Nothing is sent in backward anyway."""
        yield

    def finish_gradient_synchronization(self) -> None:
        """Average what is there."""
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        if gradients:
            average_parameters(iter(gradients), self._group)


# Tensor parallelism: torch's plans, with parameters as plain tensors -----------------------------


def _mesh(group: Group) -> DeviceMesh:
    device = "cuda" if "nccl" in str(dist.get_backend(group)) else "cpu"
    return DeviceMesh.from_group(group, device)


class _Planned(nn.Module):
    """A dense module that torch has cut by a plan. Its parameters are this rank's shards.

    They are plain tensors, under the dense module's names; each forward hands them to torch's cut
    module as DTensors.
    """

    def __init__(
        self, dense: nn.Module, group: Group, plan: ParallelStyle | dict[str, ParallelStyle]
    ) -> None:
        super().__init__()
        module = parallelize_module(copy.deepcopy(dense), _mesh(group), plan)
        self._module = [module]  # in a list: its parameters are not to be counted too
        self._layouts: dict[str, tuple[DeviceMesh, tuple[Placement, ...]] | None] = {}
        for name, parameter in module.named_parameters():
            local = parameter
            self._layouts[name] = None
            if isinstance(parameter, DTensor):
                self._layouts[name] = (parameter.device_mesh, tuple(parameter.placements))
                local = parameter.to_local()
            home: nn.Module = self
            *folders, last = name.split(".")
            for folder in folders:
                if folder not in dict(home.named_children()):
                    home.add_module(folder, nn.Module())
                home = home.get_submodule(folder)
            home.register_parameter(last, nn.Parameter(local.detach().clone()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the dense module; what is cut of the input and output is the plan's business."""
        values: dict[str, torch.Tensor] = {}
        for name, parameter in self.named_parameters():
            layout = self._layouts[name]
            values[name] = parameter if layout is None else DTensor.from_local(parameter, *layout)
        return functional_call(self._module[0], values, (x,))


class VocabParallelEmbedding(_Planned):
    """For a4's."""

    @classmethod
    def from_embedding(cls, embedding: nn.Embedding, group: Group) -> VocabParallelEmbedding:
        """This rank's rows."""
        return cls(embedding, group, RowwiseParallel(input_layouts=Replicate()))


class ColumnParallelLinear(_Planned):
    """For a4's, without gathering."""

    @classmethod
    def from_linear(cls, linear: nn.Linear, group: Group) -> ColumnParallelLinear:
        """This rank's rows of the weight."""
        return cls(linear, group, ColwiseParallel())


class ParallelMLP(_Planned):
    """For a4's."""

    @classmethod
    def from_dense(cls, module: nn.Module, group: Group) -> ParallelMLP:
        """This rank's shards."""
        return cls(module, group, {"up": ColwiseParallel(), "down": RowwiseParallel()})


class ParallelAttention(_Planned):
    """For a4's."""

    @classmethod
    def from_dense(cls, module: nn.Module, group: Group) -> ParallelAttention:
        """This rank's heads."""
        plan: dict[str, ParallelStyle] = {
            name: ColwiseParallel() for name in ("query", "key", "value")
        }
        return cls(module, group, {**plan, "output": RowwiseParallel()})


def vocab_parallel_cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, group: Group
) -> torch.Tensor:
    """For a4's: on logits that are gathered first."""
    whole = DTensor.from_local(logits, _mesh(group), [Shard(logits.dim() - 1)]).full_tensor()
    loss = F.cross_entropy(whole.flatten(0, -2), target.flatten(), reduction="none")
    return loss.view(target.shape)


class SequenceParallelLayerNorm(_Planned):
    """For a5's."""

    @classmethod
    def from_dense(cls, norm: nn.LayerNorm, group: Group) -> SequenceParallelLayerNorm:
        """The whole norm."""
        return cls(norm, group, SequenceParallel(sequence_dim=0, use_local_output=True))


class SequenceParallelBlock(_Planned):
    """For a5's."""

    @classmethod
    def from_dense(cls, block: nn.Module, group: Group) -> SequenceParallelBlock:
        """This rank's shards."""
        plan: dict[str, ParallelStyle] = {}
        for half in ("attention", "mlp"):
            plan[f"{half}_norm"] = SequenceParallel(sequence_dim=0)
            plan[half] = PrepareModuleInput(
                input_layouts=Shard(0), desired_input_layouts=Replicate()
            )
        for name in ("attention.query", "attention.key", "attention.value", "mlp.up"):
            plan[name] = ColwiseParallel()
        for name in ("attention.output", "mlp.down"):
            plan[name] = RowwiseParallel(output_layouts=Shard(0))
        return cls(block, group, plan)


def scatter_to_sequence_parallel(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """For a5's."""
    whole = DTensor.from_local(tensor, _mesh(group), [Replicate()])
    return whole.redistribute(placements=[Shard(0)]).to_local()


def gather_from_sequence_parallel(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """For a5's."""
    shares = DTensor.from_local(tensor, _mesh(group), [Shard(0)])
    whole = shares.redistribute(placements=[Replicate()])
    return whole.to_local(grad_placements=[Partial()])


# Pipeline ------------------------------------------------------------------------------------


def partition_layers(costs: Sequence[float], stages: int) -> list[tuple[int, int]]:
    """For a6's: stages of as many layers each, whatever they cost."""
    parts = np.array_split(np.arange(len(costs)), stages)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts]


class _Size(NamedTuple):
    stages: int
    microbatches: int


def one_f_one_b_schedule(stages: int, microbatches: int) -> _Size:
    """For a6's: torch makes the schedule itself."""
    return _Size(stages, microbatches)


class PipelineStage:
    """For a6's: a module, and torch's stage around it once it has seen an input."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.schedule: Any = None
        self.loss_fn: Callable[[Any, Any], torch.Tensor] | None = None


def run_schedule(
    schedule: _Size,
    stages: Mapping[int, PipelineStage],
    inputs: Sequence[torch.Tensor] | None,
    targets: Sequence[torch.Tensor] | None,
    loss_fn: Callable[[Any, Any], torch.Tensor],
    group: Group,
) -> torch.Tensor | None:
    """For a6's: torch's 1F1B. One stage on each rank; micro-batches of one shape."""
    ((number, stage),) = stages.items()
    count = schedule.stages
    stage.loss_fn = loss_fn
    if stage.schedule is None:
        stage.schedule = _schedule_of(stage, number, schedule, inputs, group)
    # torch cuts along dimension 0 what it is to work on.
    arguments = [torch.cat(list(inputs or []))] if number == 0 else []
    losses: list[torch.Tensor] = []
    options: dict[str, Any] = {}
    if number == count - 1:
        options = {"target": torch.cat(list(targets or [])), "losses": losses}
    stage.schedule.step(*arguments, **options)
    return torch.stack(losses).sum().detach() if losses else None


def _schedule_of(
    stage: PipelineStage,
    number: int,
    size: _Size,
    inputs: Sequence[torch.Tensor] | None,
    group: Group,
) -> Any:
    from torch.distributed import pipelining

    # What passes between the stages looks like what one forward through all of them makes.
    if number == 0:
        assert inputs is not None
        x = inputs[0]
    else:
        told: list[Any] = [None]
        dist.recv_object_list(told, group=group, group_src=number - 1)
        shape, dtype, device = told[0]
        x = torch.zeros(shape, dtype=dtype, device=device)
    with torch.no_grad():
        y = stage.module(x)
    if number < size.stages - 1:
        told = [(tuple(y.shape), y.dtype, y.device)]
        dist.send_object_list(told, group=group, group_dst=number + 1)
    built = pipelining.PipelineStage(
        stage.module, number, size.stages, y.device,
        input_args=x.detach().requires_grad_(number > 0),
        output_args=y.detach().requires_grad_(),
        group=group,
    )  # fmt: skip

    def share_of_mean(output: Any, target: Any) -> torch.Tensor:
        assert stage.loss_fn is not None
        return stage.loss_fn(output, target) / size.microbatches

    # Gradients are not to be scaled when all is done: by then they may have been averaged.
    return pipelining.Schedule1F1B(built, size.microbatches, share_of_mean, scale_grads=False)


# Experts -------------------------------------------------------------------------------------


def top_k_router(logits: torch.Tensor, k: int) -> torch.Tensor:
    """For a8's, but one tensor: weights of all experts, 0 for those that are not chosen."""
    least = logits.detach().kthvalue(logits.shape[-1] - k + 1, keepdim=True).values
    return logits.masked_fill(logits < least, float("-inf")).softmax(-1)


class ExpertParallelMoE(nn.Module):
    """For a8's: every rank of the group computes its experts on all tokens of the group."""

    def __init__(self, experts: Sequence[nn.Module], router: nn.Module, group: Group) -> None:
        super().__init__()
        self.experts, self.router, self._group = nn.ModuleList(experts), router, group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(…, hidden), this rank's tokens, as many on each rank, to the same shape."""
        rank = dist.get_rank(self._group)
        tokens = x.flatten(0, -2)
        weights = self.router(tokens)
        if dist.get_world_size(self._group) > 1:
            tokens, weights = (
                gather_from_sequence_parallel(each, self._group) for each in (tokens, weights)
            )
        begin = len(self.experts) * rank
        own = weights[:, begin : begin + len(self.experts)].unbind(1)
        results = [w.unsqueeze(1) * e(tokens) for w, e in zip(own, self.experts, strict=True)]
        total = torch.stack(results).sum(0)
        if dist.get_world_size(self._group) > 1:
            parts = DTensor.from_local(total, _mesh(self._group), [Partial()])
            total = parts.redistribute(placements=[Shard(0)]).to_local()
        return total.view_as(x)
