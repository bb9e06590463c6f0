"""What a rank's process says that it posts, checked, as the engine takes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import torch

from grader.fabric.broker_wire import DTYPES, Message, shape_of
from grader.fabric.clock_collectives import COLLECTIVES
from grader.fabric.collectives import CollectiveCall
from grader.fabric.record import Location, Operation

_MAX_LIST: Final = 65_536
_ROOTED: Final = ("broadcast", "reduce", "gather", "scatter")

Tensors = list[torch.Tensor]
Groups = Mapping[int, tuple[int, ...]]


class Refused(ValueError):
    """A rank's process said what no rank says."""


def integer(message: Message, name: str, low: int, high: int) -> int:
    """A number of a message, in low … high. Raises `Refused`."""
    value = message.get(name)
    if type(value) is not int or not low <= value <= high:
        raise Refused(f"{name}: expected {low} … {high}, got {value!s:.100}")
    return value


def text(message: Message, name: str, longest: int) -> str:
    """A text of a message. Raises `Refused`."""
    value = message.get(name)
    if type(value) is not str or len(value) > longest:
        raise Refused(f"{name}: expected a text of at most {longest} characters")
    return value


def integers(message: Message, name: str, low: int, high: int) -> tuple[int, ...]:
    """A list of numbers of a message, each in low … high. Raises `Refused`."""
    values = message.get(name)
    if type(values) is not list or len(values) > _MAX_LIST:
        raise Refused(f"{name}: expected a list of numbers")
    if any(type(value) is not int or not low <= value <= high for value in values):
        raise Refused(f"{name}: expected numbers in {low} … {high}")
    return tuple(values)


def group_ranks(message: Message, world_size: int, rank: int) -> tuple[int, ...]:
    """The ranks of a group that `rank` is in. Raises `Refused`."""
    ranks = integers(message, "ranks", 0, world_size - 1)
    if len(set(ranks)) < len(ranks) or rank not in ranks:
        raise Refused(f"ranks: no group of rank {rank}: {list(ranks)}")
    return ranks


def post_of(
    message: Message, tensors: Tensors, rank: int, groups: Groups, batches: set[int]
) -> tuple[Operation, CollectiveCall | None]:
    """The operation that `rank` posts, and its call when it is a collective. Raises `Refused`."""
    kind = text(message, "kind", 32)
    key = integer(message, "group", 0, _MAX_LIST)
    members = groups.get(key, ())
    if rank not in members:
        raise Refused(f"group: rank {rank} is in no group {key}")
    batch = integer(message, "batch", -1, 1 << 62)
    if batch != -1 and batch not in batches:
        raise Refused(f"batch: {batch} is none of rank {rank}'s")
    dtype, shape = text(message, "dtype", 32), shape_of(message.get("shape"))
    device = text(message, "device", 8)
    if (dtype and dtype not in DTYPES) or device not in ("cpu", "meta", "cuda"):
        raise Refused(f"no such tensor: {dtype} on {device}")
    operation = Operation(
        -1,
        rank,
        kind,
        key,
        integer(message, "peer", -1, 1 << 16),
        0,
        shape,
        dtype,
        device,
        integer(message, "tag", -(1 << 31), (1 << 31) - 1),
        batch,
        -1,
        _location(message),
    )
    if kind in ("send", "recv"):
        _point_to_point(operation, tensors, members)
        return operation, None
    if kind not in COLLECTIVES:
        raise Refused(f"kind: unknown {kind!r}")
    return operation, _collective(operation, message, tensors, members)


def _point_to_point(operation: Operation, tensors: Tensors, members: tuple[int, ...]) -> None:
    peer, rank = operation.peer, operation.rank
    anyone = operation.kind == "recv" and peer == -1
    if not anyone and (peer not in members or peer == rank):
        raise Refused(f"peer: {peer} is no other rank of the group")
    if not operation.dtype:
        raise Refused("dtype: a message has one")
    operation.nbytes = math.prod(operation.shape) * DTYPES[operation.dtype].itemsize
    if operation.kind == "recv":
        if tensors:
            raise Refused("a receive brings nothing")
        return
    if len(tensors) != 1:
        raise Refused(f"a send of {len(tensors)} tensors")
    sent = tensors[0]
    described = (DTYPES[operation.dtype], operation.shape)
    if (sent.dtype, tuple(sent.shape)) != described or sent.is_meta != (operation.device == "meta"):
        raise Refused("a send of another tensor than it says")


def _collective(
    operation: Operation, message: Message, tensors: Tensors, members: tuple[int, ...]
) -> CollectiveCall:
    root = integer(message, "root", -1, len(members) - 1)
    if (root >= 0) != (operation.kind in _ROOTED):
        raise Refused(f"root: {root} for {operation.kind}")
    operation.peer = members[root] if root >= 0 else -1
    operation.nbytes = sum(t.numel() * t.element_size() for t in tensors)
    if operation.kind == "all_to_all":
        operation.splits = tuple(t.numel() * t.element_size() for t in tensors)
    items = integer(message, "items", 0, _MAX_LIST)
    own = members.index(operation.rank) == root
    expected = {
        "all_to_all": len(members),
        "reduce_scatter": items * len(members),
        "broadcast": len(tensors) if own else 0,
        "scatter": len(members) if own else 0,
        "gather": 1,
        "barrier": 0,
    }.get(operation.kind, items)
    if len(tensors) != expected:
        raise Refused(f"{operation.kind} of {len(tensors)} tensors, where {expected} belong")
    factor = message.get("factor")
    if factor is not None and type(factor) not in (int, float):
        raise Refused("factor: expected a number")
    layout, signature = message.get("layout"), message.get("signature")
    if type(layout) is not list or type(signature) is not list:
        raise Refused("layout and signature are lists")
    return CollectiveCall(
        operation.kind,
        tensors,
        text(message, "op", 32),
        root,
        items,
        factor,
        tuple(integers({"layout": each}, "layout", 0, 1 << 48) for each in layout),
        integers(message, "output_numel", 0, 1 << 48),
        tuple(text({"signature": each}, "signature", 500) for each in signature),
    )


def _location(message: Message) -> Location | None:
    place: Any = message.get("location")
    if place is None:
        return None
    if type(place) is not list or len(place) != 3:
        raise Refused("location: expected file, line and function")
    named = dict(zip(("file", "line", "function"), place, strict=True))
    return Location(
        text(named, "file", 1000), integer(named, "line", 0, 1 << 31), text(named, "function", 500)
    )
