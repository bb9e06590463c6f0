"""Ranks beyond the power of two neither give nor get."""

import torch
import torch.distributed as dist

TASK = "a2.halving_doubling_all_reduce"
EXPECT = {
    "status": "failed",
    "cause": "powers of two",
    "check": "reduces on every rank",
}


def halving_doubling_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    _check(tensor, op)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    power = 1 << (size.bit_length() - 1)
    if rank >= power:
        return
    part = flat = tensor.contiguous().view(-1)
    path = []
    for bit in range(power.bit_length() - 1):
        low, high = part.tensor_split(2)
        mine, theirs = (high, low) if rank >> bit & 1 else (low, high)
        peer = rank ^ (1 << bit)
        mine.copy_(_merge(mine, _swap(theirs, torch.empty_like(mine), peer, group), op))
        path.append((mine, theirs, peer))
        part = mine
    if op == dist.ReduceOp.AVG:
        part /= size
    for mine, theirs, peer in reversed(path):
        _swap(mine, theirs, peer, group)
    tensor.copy_(flat.view(tensor.shape))


def _check(tensor, op):
    names = [name for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT")]
    if op not in [getattr(dist.ReduceOp, name) for name in names]:
        raise ValueError(f"op={op} is none of {names}")
    if op == dist.ReduceOp.AVG and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"op={op} does not go with {tensor.dtype}")


def _merge(total, other, op):
    if op == dist.ReduceOp.MAX:
        return torch.maximum(total, other)
    if op == dist.ReduceOp.MIN:
        return torch.minimum(total, other)
    return total * other if op == dist.ReduceOp.PRODUCT else total + other


def _swap(message, room, peer, group):
    both = [
        dist.P2POp(dist.isend, message, group=group, group_peer=peer),
        dist.P2POp(dist.irecv, room, group=group, group_peer=peer),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    return room
