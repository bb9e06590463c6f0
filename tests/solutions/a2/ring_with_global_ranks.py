"""Right: looks up its neighbours' global ranks, and keeps every partial result."""

import torch
import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = "passed"


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    _check(tensor, op)
    ranks = dist.get_process_group_ranks(group)
    place, size = ranks.index(dist.get_rank()), len(ranks)
    chunks = list(tensor.contiguous().view(-1).clone().tensor_split(size))
    for step in range(2 * size - 2):
        send, index = chunks[(place - step) % size], (place - step - 1) % size
        room = torch.empty_like(chunks[index])
        works = []
        if room.numel():
            works.append(dist.irecv(room, ranks[place - 1], group))
        if send.numel():
            works.append(dist.isend(send, ranks[(place + 1) % size], group))
        for work in works:
            work.wait()
        chunks[index] = _merge(room, chunks[index], op) if step < size - 1 else room
    result = torch.cat(chunks).view(tensor.shape)
    tensor.copy_(result / size if op == dist.ReduceOp.AVG else result)


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
