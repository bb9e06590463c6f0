"""ZeRO-3: no rank holds a whole model; parameters are gathered where and while they are needed.

N ranks that share parameters, gradients and optimizer states need 16/N bytes per parameter with
Adam in mixed precision, and send half as much again as data parallelism with replicas: two
all-gathers and a reduce-scatter in place of one all-reduce
[Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models";
Zhao et al. 2023, "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel"].
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map


class FullyShardedDataParallel(nn.Module):
    """ZeRO-3: parameters, gradients and so optimizer states live in shards on the ranks of a group.

    Inner modules are wrapped first, then the root, as with FSDP2's ``fully_shard``:

        for i, block in enumerate(model.blocks):
            model.blocks[i] = FullyShardedDataParallel(block, group)
        model = FullyShardedDataParallel(model, group)
        optimizer = torch.optim.AdamW(model.parameters())

        loss(model(inputs), targets).backward()
        model.finish_gradient_synchronization()
        optimizer.step()

    A *unit* is a wrapped module's parameters less those of units inside it. They are gathered
    before its forward and its backward, while the unit before computes, and freed after each; their
    gradients are reduce-scattered, averaged, as soon as its backward is over. At no time does a
    rank hold more than its shards and two units of whole parameters (a root with parameters of its
    own adds these: they are in use while the inner units are).

    ``parameters()`` are the rank's shards, with averaged gradients after
    ``finish_gradient_synchronization``; several backwards before it add up. All ranks run the same
    units in the same order. Parameters and buffers start as those of the group's first rank.

    Args:
        module: any module; it is used, not copied, and its parameters are replaced.
        group: the ranks that share; ``None`` is the default group.

    Raises:
        ValueError: a parameter of ``module`` is also one of a unit wrapped before.
    """

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None = None) -> None:
        super().__init__()
        raise NotImplementedError("a3.FullyShardedDataParallel")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """``module(*args, **kwargs)``, on whole parameters."""
        raise NotImplementedError("a3.FullyShardedDataParallel")

    def finish_gradient_synchronization(self) -> None:
        """Wait until every shard's gradient is the average over the group.

        To be called on the root, on all ranks, once per optimizer step, after the last backward.
        """
        raise NotImplementedError("a3.FullyShardedDataParallel")

    def gather_full_state_dict(self) -> dict[str, torch.Tensor]:
        """The whole, unsharded ``state_dict``, on every rank: all ranks call it.

        Names, shapes and order are those of the module before it was wrapped; copies.
        """
        raise NotImplementedError("a3.FullyShardedDataParallel")
