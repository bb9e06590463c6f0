"""Right: pads the vector to n equal chunks, and cuts the padding off again."""

import torch
import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = "passed"


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    _check(tensor, op)
    size = dist.get_world_size(group)
    chunk = -(-tensor.numel() // size)
    padded = tensor.new_zeros(size * chunk)
    padded[: tensor.numel()] = tensor.reshape(-1)
    if chunk:
        _ring(padded.tensor_split(size), op, group)
    tensor.copy_(padded[: tensor.numel()].view(tensor.shape))


def _check(tensor, op):
    names = [name for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT")]
    if op not in [getattr(dist.ReduceOp, name) for name in names]:
        raise ValueError(f"op={op} is none of {names}")
    if op == dist.ReduceOp.AVG and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"op={op} does not go with {tensor.dtype}")
    if tensor.untyped_storage().nbytes() < tensor.nbytes:
        raise ValueError("tensor: its elements share memory")


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


def _ring(chunks, op, group):
    """Reduce-scatter and all-gather in one loop; chunks of any sizes, in place."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    for step in range(2 * size - 2):
        send, mine = chunks[(rank - 1 - step) % size], chunks[(rank - 2 - step) % size]
        other = _pass_on(send, group, torch.empty_like(mine))
        mine.copy_(_merge(mine, other, op) if step < size - 1 else other)
        if step == size - 2 and op == dist.ReduceOp.AVG:
            mine /= size
