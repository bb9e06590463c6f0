"""AVG: divides by k, not by g k."""

import torch
import torch.distributed as dist

TASK = "a2.hierarchical_all_reduce"
EXPECT = {
    "status": "failed",
    "cause": "divided by the number of nodes",
    "check": "reduces on every rank",
}


def hierarchical_all_reduce(tensor, op, intra_group, inter_group):
    _check(tensor, op)
    g, place = dist.get_world_size(intra_group), dist.get_rank(intra_group)
    k = dist.get_world_size(inter_group)
    merged = dist.ReduceOp.SUM if op == dist.ReduceOp.AVG else op
    flat = tensor.contiguous().view(-1)
    chunks = flat.tensor_split(g)
    _half(chunks, merged, intra_group)
    _ring(chunks[place].tensor_split(k), op, inter_group)
    _half(chunks, None, intra_group)
    tensor.copy_(flat.view(tensor.shape))


def _half(chunks, op, group):
    """Reduce-scatter, or all-gather without an `op`."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    shift = 1 if op is not None else 0
    for step in range(size - 1):
        send, mine = chunks[(rank - shift - step) % size], chunks[(rank - shift - 1 - step) % size]
        other = _pass_on(send, group, torch.empty_like(mine))
        mine.copy_(other if op is None else _merge(mine, other, op))


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


def _ring(chunks, op, group):
    """Reduce-scatter and all-gather in one loop; chunks of any sizes, in place."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    for step in range(2 * size - 2):
        send, mine = chunks[(rank - 1 - step) % size], chunks[(rank - 2 - step) % size]
        other = _pass_on(send, group, torch.empty_like(mine))
        mine.copy_(_merge(mine, other, op) if step < size - 1 else other)
        if step == size - 2 and op == dist.ReduceOp.AVG:
            mine /= size
