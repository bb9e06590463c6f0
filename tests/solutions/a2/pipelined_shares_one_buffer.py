"""Several segments on their way into one receive buffer."""

import torch
import torch.distributed as dist

TASK = "a2.pipelined_ring_all_reduce"
EXPECT = {
    "status": "failed",
    "cause": "two operations that are in flight",
    "check": "reduces on every rank, whatever the segments",
}


def pipelined_ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, segment_bytes=1 << 20):
    _check(tensor, op)
    _check_segment(segment_bytes)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.contiguous().view(-1)
    chunks = flat.tensor_split(size)
    most = max(1, segment_bytes // flat.element_size())
    room = torch.empty_like(chunks[0][:most])
    for step in range(2 * size - 2):
        sends = chunks[(rank - 1 - step) % size].split(most)
        receives = chunks[(rank - 2 - step) % size].split(most)
        going = [dist.isend(each, group=group, group_dst=(rank + 1) % size) for each in sends]
        coming = [
            dist.irecv(room[: each.numel()], group=group, group_src=(rank - 1) % size)
            for each in receives
        ]
        for work, mine in zip(coming, receives, strict=True):
            work.wait()
            other = room[: mine.numel()]
            mine.copy_(_merge(mine, other, op) if step < size - 1 else other)
            if step == size - 2 and op == dist.ReduceOp.AVG:
                mine /= size
        for work in going:
            work.wait()
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


def _merge(total, other, op):
    if op == dist.ReduceOp.MAX:
        return torch.maximum(total, other)
    if op == dist.ReduceOp.MIN:
        return torch.minimum(total, other)
    return total * other if op == dist.ReduceOp.PRODUCT else total + other
