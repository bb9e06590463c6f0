"""ZeRO-1: whole parameters and gradients on every rank, but no optimizer state twice.

With Adam in mixed precision a replica costs 16 bytes per parameter, 12 of them for the optimizer:
32-bit parameters and two moments. N ranks that share these need 4 + 12/N bytes
[Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"].
ZeRO-3, where everything is shared, stands in `fsdp.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist


class ShardedOptimizer(torch.optim.Optimizer):
    """ZeRO-1: every rank keeps optimizer states for its share of the parameters only.

    Parameters and averaged gradients are whole and equal on all ranks, as after
    ``DistributedDataParallel``. Each parameter belongs to one rank, whole; the shares (elements)
    differ by no more than the largest parameter. ``step`` updates the rank's share with
    ``optimizer_class`` and sends the new values to the others, so that in the end all ranks hold
    the same bits.

    ``param_groups`` holds all parameters, so that learning-rate schedulers work: an option changed
    there holds from the next step on.

    Args:
        params: parameters, or dicts of them with options, as every optimizer of torch takes them;
            the same on all ranks.
        optimizer_class: a class of ``torch.optim`` that needs no closure.
        group: the ranks that share; ``None`` is the default group.
        kwargs: handed on to ``optimizer_class``.

    Raises:
        ValueError: there are no parameters.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[torch.optim.Optimizer],
        group: dist.ProcessGroup | None = None,
        **kwargs: Any,
    ) -> None:
        raise NotImplementedError("a3.ShardedOptimizer")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, as ``torch.optim.Optimizer.add_param_group``, on all ranks."""
        raise NotImplementedError("a3.ShardedOptimizer")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Update all parameters, in place, on all ranks; returns what ``closure`` returns.

        A parameter whose gradient is None keeps its value. Sends each parameter to those ranks
        that lack it, and nothing else.
        """
        raise NotImplementedError("a3.ShardedOptimizer")

    def state_dict(self) -> dict[str, Any]:
        """This rank's part of the optimizer's ``state_dict``; sends nothing.

        ``state`` and ``param_groups`` as the whole optimizer's: parameters are numbered through all
        groups. ``state`` holds this rank's share only, and ``share`` the numbers of its parameters:
        the union over the ranks of ``state`` is what ``optimizer_class`` itself would save.
        """
        raise NotImplementedError("a3.ShardedOptimizer")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned, whoever it came from; sends nothing.

        Takes this rank's own part, a union of several parts (without ``share``), whatever number
        of ranks saved it, or the ``state_dict`` of ``optimizer_class`` itself; states of other
        ranks' parameters are passed over.

        Raises:
            ValueError: the groups differ in number or size, or the ``share`` that was saved does
                not hold all of this rank's parameters.
        """
        raise NotImplementedError("a3.ShardedOptimizer")


def __getattr__(name: str) -> Any:
    """ZeRO-3 can be imported from here too, without `fsdp.py` in the way of ZeRO-1."""
    if name == "FullyShardedDataParallel":
        from .fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
