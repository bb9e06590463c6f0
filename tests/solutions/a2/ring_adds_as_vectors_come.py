"""Every rank adds the vectors in the order of arrival: other bits on every rank."""

import torch
import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = {
    "status": "failed",
    "check": "leaves the same bits on every rank",
    "cause": "different orders",
}


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    _check(tensor, op)
    size = dist.get_world_size(group)
    message = tensor.contiguous()
    total = message
    for _ in range(size - 1):
        message = _pass_on(message, group)
        total = _merge(total, message, op)
    tensor.copy_(total / size if op == dist.ReduceOp.AVG else total)


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


def _pass_on(message, group, room=None):
    """To the next rank; from the previous one."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    room = torch.empty_like(message) if room is None else room
    both = [
        dist.P2POp(dist.isend, message, group=group, group_peer=(rank + 1) % size),
        dist.P2POp(dist.irecv, room, group=group, group_peer=(rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    return room
