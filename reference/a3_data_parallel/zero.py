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
        # BEGIN SOLUTION
        self._group = group
        self._rank = dist.get_rank(group)
        self._shares: list[list[torch.Tensor]] = [[] for _ in range(dist.get_world_size(group))]
        self._inner: torch.optim.Optimizer | None = None
        super().__init__(params, {})  # adds the groups, and so deals out the parameters
        self._inner = optimizer_class([self._mine(each) for each in self.param_groups], **kwargs)
        self.defaults = self._inner.defaults
        for ours, theirs in zip(self.param_groups, self._inner.param_groups, strict=True):
            ours.update(_options(theirs))
        self.state = self._inner.state
        # END SOLUTION

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, as ``torch.optim.Optimizer.add_param_group``, on all ranks."""
        # BEGIN SOLUTION
        super().add_param_group(param_group)
        added = self.param_groups[-1]
        # The largest first, each to whoever has least so far.
        for parameter in sorted(added["params"], key=torch.Tensor.numel, reverse=True):
            loads = [sum(each.numel() for each in share) for share in self._shares]
            self._shares[loads.index(min(loads))].append(parameter)
        if self._inner is not None:
            self._inner.add_param_group(self._mine(added))
            added.update(_options(self._inner.param_groups[-1]))
        # END SOLUTION

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Update all parameters, in place, on all ranks; returns what ``closure`` returns.

        A parameter whose gradient is None keeps its value. Sends each parameter to those ranks
        that lack it, and nothing else.
        """
        # BEGIN SOLUTION
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        assert self._inner is not None
        for ours, theirs in zip(self.param_groups, self._inner.param_groups, strict=True):
            theirs.update(_options(ours))
        self._inner.step()
        self._publish()
        return loss
        # END SOLUTION

    def state_dict(self) -> dict[str, Any]:
        """This rank's part of the optimizer's ``state_dict``; sends nothing.

        ``state`` and ``param_groups`` as the whole optimizer's: parameters are numbered through all
        groups. ``state`` holds this rank's share only, and ``share`` the numbers of its parameters:
        the union over the ranks of ``state`` is what ``optimizer_class`` itself would save.
        """
        # BEGIN SOLUTION
        assert self._inner is not None
        number = self._numbers()
        mine = [number[p] for each in self._inner.param_groups for p in each["params"]]
        state = {mine[i]: values for i, values in self._inner.state_dict()["state"].items()}
        groups = [
            _options(each) | {"params": [number[p] for p in each["params"]]}
            for each in self.param_groups
        ]
        return {"state": state, "param_groups": groups, "share": mine}
        # END SOLUTION

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned, whoever it came from; sends nothing.

        Takes this rank's own part, a union of several parts (without ``share``), whatever number
        of ranks saved it, or the ``state_dict`` of ``optimizer_class`` itself; states of other
        ranks' parameters are passed over.

        Raises:
            ValueError: the groups differ in number or size, or the ``share`` that was saved does
                not hold all of this rank's parameters.
        """
        # BEGIN SOLUTION
        assert self._inner is not None
        saved = state_dict["param_groups"]
        theirs, ours = ([len(g["params"]) for g in each] for each in (saved, self.param_groups))
        if theirs != ours:
            raise ValueError(f"state_dict: groups of {theirs} parameters, expected {ours}")
        number = self._numbers()
        # By the numbers that were saved, which need not be ours.
        there = dict(enumerate(n for each in saved for n in each["params"]))
        mine = [there[number[p]] for each in self._inner.param_groups for p in each["params"]]
        missing = sorted(set(mine) - set(state_dict.get("share", mine)))
        if missing:
            raise ValueError(
                f"state_dict: it is the share {state_dict['share']} of another rank; expected "
                f"also parameters {missing}"
            )
        states = {i: state_dict["state"][n] for i, n in enumerate(mine) if n in state_dict["state"]}
        empty = self._inner.state_dict()["param_groups"]
        groups = [
            _options(new) | {"params": old["params"]} for new, old in zip(saved, empty, strict=True)
        ]
        self._inner.load_state_dict({"state": states, "param_groups": groups})
        for group, new in zip(self.param_groups, saved, strict=True):
            group.update(_options(new))
        self.state = self._inner.state
        # END SOLUTION

    # BEGIN SOLUTION

    def _mine(self, group: dict[str, Any]) -> dict[str, Any]:
        """The part of a parameter group that this rank updates; it may be empty."""
        share = set(self._shares[self._rank])
        return _options(group) | {"params": [p for p in group["params"] if p in share]}

    def _numbers(self) -> dict[torch.Tensor, int]:
        parameters = (p for each in self.param_groups for p in each["params"])
        return {parameter: number for number, parameter in enumerate(parameters)}

    def _publish(self) -> None:
        """Every rank broadcasts its share, all at once, one message per dtype and device."""
        messages = []
        for owner, share in enumerate(self._shares):
            kinds: dict[Any, list[torch.Tensor]] = {}
            for parameter in share:
                kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
            for parameters in kinds.values():
                flat = torch.cat([parameter.reshape(-1) for parameter in parameters])
                work = dist.broadcast(flat, group=self._group, group_src=owner, async_op=True)
                messages.append((parameters, flat, work))
        for parameters, flat, work in messages:
            work.wait()
            values = flat.split([parameter.numel() for parameter in parameters])
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(value.view(parameter.shape))

    # END SOLUTION


# BEGIN SOLUTION


def _options(group: dict[str, Any]) -> dict[str, Any]:
    """A parameter group without its parameters."""
    return {name: value for name, value in group.items() if name != "params"}


# END SOLUTION


def __getattr__(name: str) -> Any:
    """ZeRO-3 can be imported from here too, without `fsdp.py` in the way of ZeRO-1."""
    if name == "FullyShardedDataParallel":
        from .fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
