"""Given: what the collectives share. Use it, or write your own.

Each ``check_…`` raises ``ValueError`` naming the argument, what it was and what was
expected, and does nothing else. Call them before anything is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

KNOWN_OPS = ("SUM", "AVG", "MAX", "MIN", "PRODUCT")


def place(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """This rank's number in the group, and the group's size."""
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError(f"group: global rank {dist.get_rank()} is not one of its members")
    return rank, dist.get_world_size(group)


def check_op(op: dist.ReduceOp.RedOpType, dtype: torch.dtype) -> None:
    """``op`` is one of the five, and means something for ``dtype``."""
    if not any(op == getattr(dist.ReduceOp, name) for name in KNOWN_OPS):
        raise ValueError(f"op={op}: expected one of {', '.join(KNOWN_OPS)}")
    if op == dist.ReduceOp.AVG and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"op=AVG of {dtype}: expected a floating-point or complex dtype")
    if dtype.is_complex and (op == dist.ReduceOp.MAX or op == dist.ReduceOp.MIN):
        raise ValueError(f"op={op} of {dtype}: expected a dtype whose values have an order")


def check_list(
    name: str,
    tensors: Sequence[torch.Tensor],
    own_name: str,
    own: torch.Tensor,
    rank: int,
    size: int,
) -> None:
    """``tensors`` has one entry per rank, all of ``own``'s dtype, entry ``rank`` of its shape."""
    if len(tensors) != size:
        raise ValueError(
            f"{name} has {len(tensors)} tensors: expected one for each of {size} ranks"
        )
    for peer, tensor in enumerate(tensors):
        if tensor.dtype != own.dtype:
            raise ValueError(
                f"{name}[{peer}] is {tensor.dtype}: expected {own.dtype} as in {own_name}"
            )
    if tensors[rank].shape != own.shape:
        raise ValueError(
            f"{name}[{rank}] has shape {tuple(tensors[rank].shape)}: "
            f"expected {tuple(own.shape)} as in {own_name}"
        )


def check_root_list(
    name: str,
    tensors: Sequence[torch.Tensor] | None,
    own_name: str,
    own: torch.Tensor,
    rank: int,
    root: int,
    size: int,
) -> None:
    """``check_list`` on the root; ``None`` on every other rank. ``root`` is a group rank."""
    if rank == root:
        if tensors is None:
            raise ValueError(f"{name} is None on the root: expected {size} tensors, one per rank")
        check_list(name, tensors, own_name, own, rank, size)
    elif tensors is not None:
        raise ValueError(
            f"{name} has {len(tensors)} tensors on group rank {rank}: "
            f"expected None on every rank but the root, {root}"
        )


def check_split_sizes(
    name: str, tensor: torch.Tensor, sizes: Sequence[int] | None, ranks: int
) -> list[int]:
    """Rows of ``tensor`` (dimension 0) per rank; equal ones where ``sizes`` is ``None``.

    ``name`` is "input" or "output": the split sizes are called ``{name}_split_sizes``.
    """
    if tensor.dim() == 0:
        raise ValueError(f"{name} has 0 dimensions: expected at least 1, to be cut along")
    rows = tensor.size(0)
    if sizes is None:
        if rows % ranks:
            raise ValueError(
                f"{name} has {rows} rows, not divisible by {ranks} ranks: "
                f"expected {name}_split_sizes to say who gets how many"
            )
        return [rows // ranks] * ranks
    if len(sizes) != ranks:
        raise ValueError(
            f"{name}_split_sizes has {len(sizes)} entries: expected one for each of {ranks} ranks"
        )
    if min(sizes) < 0:
        raise ValueError(f"{name}_split_sizes={list(sizes)}: expected none below 0")
    if sum(sizes) != rows:
        raise ValueError(
            f"{name}_split_sizes={list(sizes)} add up to {sum(sizes)}: expected {rows}, "
            f"the rows of {name}"
        )
    return list(sizes)


def combine(total: torch.Tensor, other: torch.Tensor, op: dist.ReduceOp.RedOpType) -> None:
    """Fold ``other`` into ``total``, in place. SUM and AVG add: AVG has yet to be divided, once."""
    if op == dist.ReduceOp.MAX:
        torch.maximum(total, other, out=total)
    elif op == dist.ReduceOp.MIN:
        torch.minimum(total, other, out=total)
    elif op == dist.ReduceOp.PRODUCT:
        total.mul_(other)
    else:
        total.add_(other)
