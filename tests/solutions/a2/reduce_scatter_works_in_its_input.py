"""Adds into the chunks of the caller's tensor."""

import torch
import torch.distributed as dist

TASK = "a2.ring_reduce_scatter"
EXPECT = {
    "status": "failed",
    "cause": "accumulated in the caller's tensor",
    "check": "reduces chunk i onto rank i, and leaves its input alone",
}


def ring_reduce_scatter(output, tensor, op=dist.ReduceOp.SUM, group=None):
    _check(tensor, op)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    _check_shapes(tensor, output, size)
    chunks = tensor.contiguous().view(-1).tensor_split(size)
    for step in range(size - 1):
        other = _pass_on(chunks[(rank - 1 - step) % size], group)
        mine = chunks[(rank - 2 - step) % size]
        mine.copy_(_merge(mine, other, op))
    result = chunks[rank] / size if op == dist.ReduceOp.AVG else chunks[rank]
    output.copy_(result.view(output.shape))


def _check(tensor, op):
    names = [name for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT")]
    if op not in [getattr(dist.ReduceOp, name) for name in names]:
        raise ValueError(f"op={op} is none of {names}")
    if op == dist.ReduceOp.AVG and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"op={op} does not go with {tensor.dtype}")


def _check_shapes(whole, chunk, size):
    if whole.shape[0] != size * chunk.shape[0] or whole.shape[1:] != chunk.shape[1:]:
        raise ValueError(
            f"tensor {tuple(whole.shape)} is not {size} times output {tuple(chunk.shape)}"
        )


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
