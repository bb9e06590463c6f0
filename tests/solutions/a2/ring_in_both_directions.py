"""Half of the vector around the ring one way, the other half the other way."""

import torch
import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = {
    "status": "failed",
    "check": "sends to the next rank only",
    "cause": "both directions",
}


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    _check(tensor, op)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.contiguous().view(-1)
    for half, way in zip(flat.tensor_split(2), (1, -1), strict=True):
        chunks = half.tensor_split(size)
        for step in range(2 * size - 2):
            send = chunks[(rank - way * (1 + step)) % size]
            mine = chunks[(rank - way * (2 + step)) % size]
            other = torch.empty_like(mine)
            both = [
                dist.P2POp(dist.isend, send, group=group, group_peer=(rank + way) % size),
                dist.P2POp(dist.irecv, other, group=group, group_peer=(rank - way) % size),
            ]
            for work in dist.batch_isend_irecv(both):
                work.wait()
            mine.copy_(_merge(mine, other, op) if step < size - 1 else other)
            if step == size - 2 and op == dist.ReduceOp.AVG:
                mine /= size
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
