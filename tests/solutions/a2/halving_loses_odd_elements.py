"""Halves of N // 2 elements: an odd one is never reduced."""

import torch
import torch.distributed as dist

TASK = "a2.halving_doubling_all_reduce"
EXPECT = {
    "status": "failed",
    "cause": "were left out",
    "check": "reduces on every rank",
}


def halving_doubling_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    _check(tensor, op)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    power = 1 << (size.bit_length() - 1)
    flat = tensor.contiguous().view(-1)
    if rank >= power:
        dist.send(flat, group=group, group_dst=rank - power)
        dist.recv(flat, group=group, group_src=rank - power)
    else:
        if rank + power < size:
            other = torch.empty_like(flat)
            dist.recv(other, group=group, group_src=rank + power)
            flat.copy_(_merge(flat, other, op))
        _among(flat, op, rank, power, group)
        if op == dist.ReduceOp.AVG:
            flat /= size
        if rank + power < size:
            dist.send(flat, group=group, group_dst=rank + power)
    tensor.copy_(flat.view(tensor.shape))


def _among(flat, op, rank, power, group):
    begin, length, path, distance = 0, flat.numel(), [], 1
    while distance < power:
        length //= 2
        low, high = flat[begin : begin + length], flat[begin + length : begin + 2 * length]
        mine, theirs = (high, low) if rank & distance else (low, high)
        begin += length if rank & distance else 0
        other = _swap(theirs, torch.empty_like(mine), rank ^ distance, group)
        mine.copy_(_merge(mine, other, op))
        path.append((mine, theirs, rank ^ distance))
        distance *= 2
    for mine, theirs, peer in reversed(path):
        _swap(mine, theirs, peer, group)


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
