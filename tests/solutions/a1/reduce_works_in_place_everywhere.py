"""Adds into the caller's tensor on every rank of the tree, not only on the root."""

import torch
import torch.distributed as dist

TASK = "a1.reduce"
EXPECT = {
    "status": "failed",
    "check": "leaves the other ranks' tensors alone",
    "cause": "partial sums were written into the argument",
}


def reduce(tensor, dst, op=dist.ReduceOp.SUM, group=None):
    ranks, size, place, root, total = _start(tensor, dst, op, group)
    step = 1
    while step < size:
        if place & step:
            dist.send(total, group=group, group_dst=(place - step + root) % size)
            return
        if place + step < size:
            other = torch.empty_like(total)
            dist.recv(other, group=group, group_src=(place + step + root) % size)
            total = _merge(total, other, op)
            tensor.detach().copy_(total)
        step *= 2
    if op == dist.ReduceOp.AVG:
        total /= size
    tensor.detach().copy_(total)


def _start(tensor, dst, op, group):
    ranks = dist.get_process_group_ranks(group)
    if dst not in ranks:
        raise ValueError(f"dst={dst} is not one of {ranks}")
    known = [getattr(dist.ReduceOp, name) for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT")]
    if op not in known:
        raise ValueError(f"op={op} is none of {known}")
    if op == dist.ReduceOp.AVG and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"op={op} needs floating-point numbers, not {tensor.dtype}")
    size, root = len(ranks), ranks.index(dst)
    place = (dist.get_rank(group) - root) % size
    return ranks, size, place, root, tensor.detach().clone(memory_format=torch.contiguous_format)


def _merge(total, other, op):
    if op == dist.ReduceOp.MAX:
        return torch.maximum(total, other)
    if op == dist.ReduceOp.MIN:
        return torch.minimum(total, other)
    return total * other if op == dist.ReduceOp.PRODUCT else total + other
