"""What each collective computes, from all ranks' inputs to all ranks' outputs.

Pure functions on tensors: no ranks run here. A reduction adds in group order, in the tensors' own
dtype, so every rank gets the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

Tensors = list[torch.Tensor]


@dataclass(slots=True)
class CollectiveCall:
    """One rank's call.

    kind: "all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter",
        "reduce_scatter", "all_to_all" or "barrier".
    inputs: snapshots of what the rank contributes. all_reduce, broadcast, reduce, all_gather and
        gather: one tensor per item (several when calls are coalesced). reduce_scatter,
        all_to_all: one flat list with, for each item, one tensor per group rank. scatter: the
        same on the root, empty elsewhere.
    items: how many calls are coalesced into this one.
    output_shapes: number of elements of each buffer the rank expects to be filled, in the order
        of `outputs`.
    root: group rank of the root, or -1.
    outputs: filled by `execute`, in the order the rank's buffers were listed.
    """

    kind: str
    inputs: Tensors
    op: str = ""
    root: int = -1
    items: int = 1
    factor: float | torch.Tensor | None = None
    layout: tuple[tuple[int, ...], ...] = ()
    output_numel: tuple[int, ...] = ()
    signature: tuple[object, ...] = ()
    outputs: Tensors = field(default_factory=list)


def difference(a: CollectiveCall, b: CollectiveCall) -> str | None:
    """How two ranks' calls of what should be one collective differ, or `None`."""
    if a.kind != b.kind:
        return f"{a.kind} and {b.kind}"
    if a.items != b.items:
        return f"{a.items} and {b.items} tensors coalesced into one {a.kind}"
    if a.op != b.op:
        return f"{a.kind} with op {a.op} and with op {b.op}"
    if a.root != b.root:
        return f"{a.kind} with root {a.root} and with root {b.root} (ranks of the group)"
    if a.layout != b.layout:
        return f"{a.kind} of tensors with strides {a.layout} and {b.layout}"
    if a.signature != b.signature:
        return f"{a.kind} of {_text(a.signature)} and of {_text(b.signature)}"
    return None


def _text(signature: tuple[object, ...]) -> str:
    return ", ".join(str(part) for part in signature)


_ELEMENTWISE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": torch.Tensor.add_,
    "AVG": torch.Tensor.add_,
    "PREMUL_SUM": torch.Tensor.add_,
    "PRODUCT": torch.Tensor.mul_,
    "MAX": lambda a, b: torch.maximum(a, b, out=a),
    "MIN": lambda a, b: torch.minimum(a, b, out=a),
    "BAND": torch.Tensor.bitwise_and_,
    "BOR": torch.Tensor.bitwise_or_,
    "BXOR": torch.Tensor.bitwise_xor_,
}


def reduce_tensors(tensors: Tensors, op: str, factor: float | torch.Tensor | None) -> torch.Tensor:
    """`tensors` reduced with `op`, in order; AVG divides by their number at the end."""
    if tensors[0].device.type == "meta":
        return tensors[0]
    total = tensors[0].clone()
    if op == "PREMUL_SUM" and factor is not None:
        total.mul_(factor)
        tensors = [total, *(tensor * factor for tensor in tensors[1:])]
    step = _ELEMENTWISE[op]
    for tensor in tensors[1:]:
        step(total, tensor)
    if op == "AVG":
        if total.is_floating_point() or total.is_complex():
            total.div_(len(tensors))
        else:
            total.div_(len(tensors), rounding_mode="trunc")
    return total


def execute(calls: list[CollectiveCall]) -> tuple[int, int, str] | None:
    """Fill `outputs` of every rank's call (in group order).

    Returns `None`, or (rank, rank, text): the group ranks whose sizes do not fit together.
    """
    first = calls[0]
    size = len(calls)
    match first.kind:
        case "barrier":
            return None
        case "all_reduce":
            for item in range(first.items):
                total = reduce_tensors([c.inputs[item] for c in calls], first.op, first.factor)
                for call in calls:
                    call.outputs.append(total)
        case "reduce":
            for item in range(first.items):
                total = reduce_tensors([c.inputs[item] for c in calls], first.op, first.factor)
                calls[first.root].outputs.append(total)
        case "broadcast":
            for call in calls:
                call.outputs = list(calls[first.root].inputs)
        case "all_gather":
            for call in calls:
                call.outputs = [c.inputs[item] for item in range(first.items) for c in calls]
        case "gather":
            calls[first.root].outputs = [c.inputs[0] for c in calls]
        case "scatter":
            for rank, call in enumerate(calls):
                call.outputs = [calls[first.root].inputs[rank]]
        case "reduce_scatter":
            for rank, call in enumerate(calls):
                for item in range(first.items):
                    shares = [c.inputs[item * size + rank] for c in calls]
                    call.outputs.append(reduce_tensors(shares, first.op, first.factor))
        case "all_to_all":
            for rank, call in enumerate(calls):
                call.outputs = [c.inputs[rank] for c in calls]
        case unknown:
            raise ValueError(f"unknown collective {unknown!r}")
    return _sizes_fit(calls)


def _sizes_fit(calls: list[CollectiveCall]) -> tuple[int, int, str] | None:
    for rank, call in enumerate(calls):
        for index, (output, numel) in enumerate(zip(call.outputs, call.output_numel, strict=True)):
            if output.numel() != numel:
                source = index % len(calls) if len(call.outputs) > 1 else max(call.root, 0)
                return (
                    source,
                    rank,
                    f"{call.kind} brings {output.numel()} elements from group rank {source} where "
                    f"group rank {rank} expects {numel}",
                )
    return None
