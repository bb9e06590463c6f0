"""Right: begins with the farthest partner, and folds rank r + q onto rank r."""

import torch
import torch.distributed as dist

TASK = "a2.halving_doubling_all_reduce"
EXPECT = "passed"


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
    bounds = [flat.numel() * i // power for i in range(power + 1)]
    begin, end, distance = 0, power, power // 2
    while distance:
        middle = (begin + end) // 2
        low, high = flat[bounds[begin] : bounds[middle]], flat[bounds[middle] : bounds[end]]
        mine, theirs = (high, low) if rank & distance else (low, high)
        begin, end = (middle, end) if rank & distance else (begin, middle)
        mine.copy_(_merge(mine, _swap(theirs, torch.empty_like(mine), rank ^ distance, group), op))
        distance //= 2
    distance = 1
    while distance < power:
        mine = flat[bounds[begin] : bounds[end]]
        other = begin - distance if rank & distance else end
        theirs = flat[bounds[other] : bounds[other + distance]]
        _swap(mine, theirs, rank ^ distance, group)
        begin, end = min(begin, other), max(end, other + distance)
        distance *= 2


def _check(tensor, op):
    names = [name for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT")]
    if op not in [getattr(dist.ReduceOp, name) for name in names]:
        raise ValueError(f"op={op} is none of {names}")
    if op == dist.ReduceOp.AVG and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"op={op} does not go with {tensor.dtype}")
    if any(n > 1 and s == 0 for n, s in zip(tensor.shape, tensor.stride())):
        raise ValueError(f"tensor is expanded: {tensor.stride()}")


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
