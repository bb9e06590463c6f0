"""No tree: the root receives from every rank itself."""

import torch
import torch.distributed as dist

TASK = "a1.reduce"
EXPECT = {
    "status": "failed",
    "check": "sends no more than a tree",
    "cause": "every rank sent to the root itself",
}


def reduce(tensor, dst, op=dist.ReduceOp.SUM, group=None):
    ranks, size, place, root, total = _start(tensor, dst, op, group)
    if place:
        dist.send(total, dst, group)
        return
    for peer in ranks:
        if peer != dst:
            other = torch.empty_like(total)
            dist.recv(other, peer, group)
            total = _merge(total, other, op)
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
