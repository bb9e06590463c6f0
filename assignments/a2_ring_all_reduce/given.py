"""Given: what a reduction does to the numbers. How they travel is the assignment."""

from __future__ import annotations

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
    """Raise ``ValueError`` unless ``op`` is one of the five and means something for ``dtype``."""
    if not any(op == getattr(dist.ReduceOp, name) for name in KNOWN_OPS):
        raise ValueError(f"op={op}: expected one of {', '.join(KNOWN_OPS)}")
    if op == dist.ReduceOp.AVG and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"op=AVG of {dtype}: expected a floating-point or complex dtype")
    if dtype.is_complex and (op == dist.ReduceOp.MAX or op == dist.ReduceOp.MIN):
        raise ValueError(f"op={op} of {dtype}: expected a dtype whose values have an order")


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
