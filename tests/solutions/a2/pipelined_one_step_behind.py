"""Posts all segments of a step at once, but ends each step before the next."""

import torch
import torch.distributed as dist

TASK = "a2.pipelined_ring_all_reduce"
EXPECT = {
    "status": "failed",
    "check": "hides the reduction behind the transfer",
    "cause": "overlaps",
}


def pipelined_ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, segment_bytes=1 << 20):
    _check(tensor, op)
    _check_segment(segment_bytes)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.contiguous().view(-1)
    chunks = flat.tensor_split(size)
    most = max(1, segment_bytes // flat.element_size())
    for step in range(2 * size - 2):
        send, mine = chunks[(rank - 1 - step) % size], chunks[(rank - 2 - step) % size]
        other = torch.empty_like(mine) if step < size - 1 else mine
        works = [
            dist.irecv(room, group=group, group_src=(rank - 1) % size)
            for room in other.split(most)
            if room.numel()
        ]
        works += [
            dist.isend(segment, group=group, group_dst=(rank + 1) % size)
            for segment in send.split(most)
            if segment.numel()
        ]
        for work in works:
            work.wait()
        if step < size - 1:
            _add(mine, other, op)
        if step == size - 2 and op == dist.ReduceOp.AVG:
            mine /= size
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
