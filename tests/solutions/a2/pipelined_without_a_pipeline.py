"""Cuts into segments, but waits for each of them before it posts the next."""

import torch
import torch.distributed as dist

TASK = "a2.pipelined_ring_all_reduce"
EXPECT = {
    "status": "failed",
    "check": "hides the reduction behind the transfer",
    "cause": "nothing overlaps",
}


def pipelined_ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, segment_bytes=1 << 20):
    _check(tensor, op)
    _check_segment(segment_bytes)
    size = dist.get_world_size(group)
    flat = tensor.contiguous().view(-1)
    chunks = flat.tensor_split(size)
    most = max(1, segment_bytes // flat.element_size())
    count = max(1, -(-chunks[0].numel() // most))
    for segments in zip(*(chunk.tensor_split(count) for chunk in chunks), strict=True):
        _ring(segments, op, group)
    if not tensor.is_contiguous():
        tensor.copy_(flat.view(tensor.shape))


def _check(tensor, op):
    names = [name for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT")]
    if op not in [getattr(dist.ReduceOp, name) for name in names]:
        raise ValueError(f"op={op} is none of {names}")
    if op == dist.ReduceOp.AVG and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"op={op} does not go with {tensor.dtype}")


def _check_segment(segment_bytes):
    if segment_bytes < 1:
        raise ValueError(f"segment_bytes={segment_bytes}, expected 1 or more")


def _add(mine, other, op):
    if op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        mine += other
    else:
        mine.copy_(_merge(mine, other, op))


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
        other = _pass_on(send, group, torch.empty_like(mine) if step < size - 1 else mine)
        if step < size - 1:
            _add(mine, other, op)
        if step == size - 2 and op == dist.ReduceOp.AVG:
            mine /= size
