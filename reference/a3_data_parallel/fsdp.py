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

# BEGIN SOLUTION
from .ddp import broadcast_from_first, pack_gradients


class _FlatShard:
    """The parameters of a unit that share dtype, device and requires_grad, as one flat vector.

    The vector is padded to a multiple of the world size and cut into equal chunks; a rank keeps
    one. `full` is the whole: its storage is filled by an all-gather and emptied after use. The
    module computes with `wholes`, leaves that look into `full`; autograd may keep them for
    backward, for their storage is filled again by then. `pieces` are what the rank keeps of each
    parameter, the leaves that the optimizer sees.
    """

    def __init__(self, parameters: list[nn.Parameter], group: dist.ProcessGroup | None) -> None:
        self.group, self.size = group, dist.get_world_size(group)
        self.trainable = parameters[0].requires_grad
        ends = list(itertools.accumulate(parameter.numel() for parameter in parameters))
        chunk = -(-ends[-1] // self.size)
        first = dist.get_rank(group) * chunk  # element of the flat vector
        with torch.no_grad():
            self.full = parameters[0].new_zeros(self.size * chunk)
            torch.cat([p.reshape(-1) for p in parameters], out=self.full[: ends[-1]])
            broadcast_from_first([self.full], group)
            self.shard = self.full[first : first + chunk].clone()
        self.wholes, self.pieces, self.places = [], [], []
        for parameter, end in zip(parameters, ends, strict=True):
            begin = end - parameter.numel()
            # `.data`: refilling the storage is no change that autograd should complain about.
            whole = self.full.data[begin:end].view(parameter.shape)
            place = slice(*(min(max(each - first, 0), chunk) for each in (begin, end)))
            self.wholes.append(nn.Parameter(whole, self.trainable))
            self.pieces.append(nn.Parameter(self.shard[place], self.trainable))
            self.places.append(place)
        self.gathering: dist.Work | None = None
        self.reducing: tuple[dist.Work, torch.Tensor, bool] | None = None
        self.gathered = True
        self.free()

    def gather(self) -> None:
        """Begin to fill `full`, unless it is full or on its way."""
        if not self.gathered and self.gathering is None:
            self.full.untyped_storage().resize_(self.full.numel() * self.full.element_size())
            self.gathering = dist.all_gather_into_tensor(
                self.full, self.shard, self.group, async_op=True
            )

    def wait(self) -> None:
        if self.gathering is not None:
            self.gathering.wait()
            self.gathering, self.gathered = None, True

    def free(self) -> None:
        self.wait()
        self.full.untyped_storage().resize_(0)
        self.gathered = False

    def reduce(self) -> None:
        """Begin to average the gradients; each rank gets its chunk, and the marks (see `ddp`)."""
        packed = pack_gradients(self.wholes).div_(self.size)
        complete = all(whole.grad is not None for whole in self.wholes)
        for whole in self.wholes:
            whole.grad = None
        flat, marks = packed.split([packed.numel() - len(self.wholes), len(self.wholes)])
        padded = nn.functional.pad(flat, (0, self.full.numel() - flat.numel()))
        rows = torch.cat([padded.view(self.size, -1), marks.expand(self.size, -1)], dim=1)
        message = rows.new_empty(rows.shape[1])
        work = dist.reduce_scatter_tensor(message, rows.view(-1), group=self.group, async_op=True)
        self.reducing = work, message, complete

    def finish(self) -> None:
        """Add what the reduction brought to the gradients of the pieces."""
        if self.reducing is None:
            return
        work, message, complete = self.reducing
        self.reducing = None
        work.wait()
        marks = message[self.shard.numel() :]
        used = [True] * len(marks) if complete else [mark > 0 for mark in marks.tolist()]
        for piece, place, in_use in zip(self.pieces, self.places, used, strict=True):
            if in_use:
                gradient = message[place]
                piece.grad = gradient if piece.grad is None else piece.grad + gradient


class _Unit:
    """The parameters that are gathered and freed together: a module's, less its inner units'."""

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None) -> None:
        self.flats: list[_FlatShard] = []
        self.slots: list[tuple[nn.Module, str, nn.Parameter, nn.Parameter]] = []
        self.unreduced = False  # a forward ran whose gradients have not been sent
        self.awaited = 0  # forwards whose inputs still wait for their gradients
        kinds: dict[Any, dict[nn.Parameter, list[tuple[nn.Module, str]]]] = {}
        for owner in _outside_inner_units(module):
            broadcast_from_first([b for b in owner._buffers.values() if b is not None], group)
            for name, parameter in owner._parameters.items():
                if parameter is None:
                    continue
                if hasattr(parameter, "_sharded"):
                    raise ValueError(
                        f"module: {name} is shared with a unit that is wrapped already"
                    )
                kind = (parameter.dtype, parameter.device, parameter.requires_grad)
                kinds.setdefault(kind, {}).setdefault(parameter, []).append((owner, name))
        for places in kinds.values():
            flat = _FlatShard(list(places), group)
            self.flats.append(flat)
            for parameter, whole, piece in zip(places, flat.wholes, flat.pieces, strict=True):
                parameter._sharded = True
                self.slots += [(owner, name, whole, piece) for owner, name in places[parameter]]
                if flat.trainable:
                    whole.register_post_accumulate_grad_hook(self._on_gradient)
        self.show(wholes=False)
        inner = [each._unit for each in module.modules() if hasattr(each, "_unit")]
        self.schedule = _Schedule([self, *inner])
        module._unit = self
        module.register_forward_pre_hook(self._before_forward, with_kwargs=True)
        module.register_forward_hook(self._after_forward)

    def gather(self) -> None:
        for flat in self.flats:
            flat.gather()

    def wait(self) -> None:
        for flat in self.flats:
            flat.wait()

    def free(self) -> None:
        for flat in self.flats:
            flat.free()

    def show(self, wholes: bool) -> None:
        """What the modules find under their parameters' names."""
        for owner, name, whole, piece in self.slots:
            owner._parameters[name] = whole if wholes else piece

    def _before_forward(self, _: nn.Module, args: Any, kwargs: Any) -> Any:
        schedule = self.schedule
        if self is schedule.units[0]:
            schedule.started, schedule.finished = [], []
        schedule.started.append(self)
        self.gather()
        self.wait()
        self.show(wholes=True)
        _prefetch(schedule.expected[len(schedule.started) :])
        tensors = [t for t in tree_leaves((args, kwargs)) if _has_gradient(t)]
        if not (torch.is_grad_enabled() and tensors):
            return args, kwargs
        self.awaited += 1
        watched = iter(_AfterBackward.apply(self._after_backward, *tensors))
        return tree_map(lambda t: next(watched) if _has_gradient(t) else t, (args, kwargs))

    def _after_forward(self, _: nn.Module, args: Any, output: Any) -> None:
        schedule = self.schedule
        self.show(wholes=False)
        self.free()
        if self is schedule.units[0]:
            schedule.expected = schedule.started
        tensors = [t for t in tree_leaves(output) if _has_gradient(t)]
        if torch.is_grad_enabled() and tensors:
            self.unreduced = True
            schedule.finished.append(self)
            order = list(reversed(schedule.finished))  # as backward runs them, this one first
            for tensor in tensors:
                tensor.register_hook(lambda _: self._before_backward(order))

    def _before_backward(self, order: list[_Unit]) -> None:
        self.gather()
        self.wait()
        _prefetch(order[1:])

    def _after_backward(self) -> None:
        """The gradients of a forward's inputs are there; those of its parameters came before."""
        self.awaited -= 1
        self.free()
        if self.awaited <= 0:
            self.schedule.reduce(self)

    def _on_gradient(self, _: torch.Tensor) -> None:
        """Where no input has a gradient, the unit is through with the last of its parameters."""
        wholes = [whole for flat in self.flats if flat.trainable for whole in flat.wholes]
        if self.awaited == 0 and all(whole.grad is not None for whole in wholes):
            self.free()
            self.schedule.reduce(self)


class _Schedule:
    """What the units under one root share: the order in which they run, and their reductions."""

    def __init__(self, units: list[_Unit]) -> None:
        self.units = self.expected = units  # expected: the order of the last forward
        self.started: list[_Unit] = []
        self.finished: list[_Unit] = []
        self.reducing: list[_FlatShard] = []
        for unit in units:
            unit.schedule = self

    def reduce(self, unit: _Unit) -> None:
        """Begin a unit's reduction, after the one before: no more than one takes up memory."""
        self.finish_reductions()
        unit.unreduced, unit.awaited = False, 0
        self.reducing = [flat for flat in unit.flats if flat.trainable]
        for flat in self.reducing:
            flat.reduce()

    def finish_reductions(self) -> None:
        for flat in self.reducing:
            flat.finish()
        self.reducing = []


class _AfterBackward(torch.autograd.Function):
    """The identity; its backward, which runs after that of whatever used it, calls back."""

    @staticmethod
    def forward(ctx: Any, callback: Callable[[], None], *tensors: torch.Tensor) -> Any:
        ctx.callback = callback
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.callback()
        return None, *gradients


def _outside_inner_units(module: nn.Module) -> Iterator[nn.Module]:
    """The module and all below it, up to where inner units begin."""
    yield module
    for child in module.children():
        if not hasattr(child, "_unit"):
            yield from _outside_inner_units(child)


def _has_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _prefetch(units: list[_Unit]) -> None:
    """Begin to gather the next unit, and no more than one."""
    for unit in units:
        if unit.flats:
            unit.gather()
            break


# END SOLUTION


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
        # BEGIN SOLUTION
        self.module = module
        self._root = _Unit(module, group)
        # END SOLUTION

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """``module(*args, **kwargs)``, on whole parameters."""
        # BEGIN SOLUTION
        return self.module(*args, **kwargs)
        # END SOLUTION

    def finish_gradient_synchronization(self) -> None:
        """Wait until every shard's gradient is the average over the group.

        To be called on the root, on all ranks, once per optimizer step, after the last backward.
        """
        # BEGIN SOLUTION
        schedule = self._root.schedule
        for unit in schedule.units:
            unit.free()
            if unit.unreduced:  # backward did not reach all of it
                schedule.reduce(unit)
        schedule.finish_reductions()
        # END SOLUTION

    def gather_full_state_dict(self) -> dict[str, torch.Tensor]:
        """The whole, unsharded ``state_dict``, on every rank: all ranks call it.

        Names, shapes and order are those of the module before it was wrapped; copies.
        """
        # BEGIN SOLUTION
        values: dict[torch.Tensor, torch.Tensor] = {}
        for unit in self._root.schedule.units:
            unit.gather()
            unit.wait()
            for _, _, whole, piece in unit.slots:
                values[piece] = whole.detach().clone()
            unit.free()
        return dict(_named_state(self, "", values))
        # END SOLUTION


# BEGIN SOLUTION


def _named_state(
    module: nn.Module, prefix: str, values: dict[torch.Tensor, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """What `module.state_dict()` lists, as if nothing were wrapped."""
    while isinstance(module, FullyShardedDataParallel):
        module = module.module
    for name, piece in module._parameters.items():
        if piece is not None:
            yield prefix + name, values[piece]
    for name, buffer in module._buffers.items():
        if buffer is not None and name not in module._non_persistent_buffers_set:
            yield prefix + name, buffer.detach().clone()
    for name, child in module.named_children():
        yield from _named_state(child, f"{prefix}{name}.", values)


# END SOLUTION
