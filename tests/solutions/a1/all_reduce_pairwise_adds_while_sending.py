"""Adds into the tensor that is still being sent."""

import torch
import torch.distributed as dist

TASK = "a1.all_reduce_pairwise"
EXPECT = {
    "status": "failed",
    "check": "reduces into every rank's tensor",
    "cause": "wait()",
}


def all_reduce_pairwise(tensor, op=dist.ReduceOp.SUM, group=None):
    rank, size = _start(tensor, op, group)
    total = tensor.detach().contiguous()
    sends, receives, rooms = [], [], []
    for step in range(1, size):
        rooms.append(torch.empty_like(total))
        receives.append(dist.irecv(rooms[-1], group=group, group_src=(rank - step) % size))
        sends.append(dist.isend(total, group=group, group_dst=(rank + step) % size))
    for receive, room in zip(receives, rooms, strict=True):
        receive.wait()
        total.copy_(_fold([total, room], op, average=False))
    for send in sends:
        send.wait()
    tensor.detach().copy_(total / size if op == dist.ReduceOp.AVG else total)


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
