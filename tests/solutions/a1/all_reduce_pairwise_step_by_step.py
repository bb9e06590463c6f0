"""Right: p - 1 rounds with one partner each, all contributions kept and added in rank order."""

import torch
import torch.distributed as dist

TASK = "a1.all_reduce_pairwise"
EXPECT = "passed"


def all_reduce_pairwise(tensor, op=dist.ReduceOp.SUM, group=None):
    rank, size = _start(tensor, op, group)
    message = tensor.detach().contiguous()
    rooms = [torch.empty_like(message) for _ in range(size)]
    rooms[rank] = message
    for step in range(1, size):
        to, source = (rank + step) % size, (rank - step) % size
        batch = [
            dist.P2POp(dist.isend, message, group=group, group_peer=to),
            dist.P2POp(dist.irecv, rooms[source], group=group, group_peer=source),
        ]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
    tensor.detach().copy_(_fold(rooms, op))


def _start(tensor, op, group, checked=True):
    known = [getattr(dist.ReduceOp, name) for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT")]
    if op not in known:
        raise ValueError(f"op={op} is none of {known}")
    real = tensor.is_floating_point() or tensor.is_complex()
    if op == dist.ReduceOp.AVG and checked and not real:
        raise ValueError(f"op={op} needs floating-point numbers, not {tensor.dtype}")
    return dist.get_rank(group), dist.get_world_size(group)


def _fold(tensors, op, average=True):
    total = tensors[0].detach().clone()
    for tensor in tensors[1:]:
        if op == dist.ReduceOp.MAX:
            total = torch.maximum(total, tensor)
        elif op == dist.ReduceOp.MIN:
            total = torch.minimum(total, tensor)
        elif op == dist.ReduceOp.PRODUCT:
            total = total * tensor
        else:
            total = total + tensor
    return total / len(tensors) if average and op == dist.ReduceOp.AVG else total
