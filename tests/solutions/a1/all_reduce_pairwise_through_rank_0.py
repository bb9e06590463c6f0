"""Rank 0 adds and sends the result back: a parameter server."""

import torch
import torch.distributed as dist

TASK = "a1.all_reduce_pairwise"
EXPECT = {
    "status": "failed",
    "check": "sends every rank's tensor to every other rank",
    "cause": "through one rank",
}


def all_reduce_pairwise(tensor, op=dist.ReduceOp.SUM, group=None):
    rank, size = _start(tensor, op, group)
    message = tensor.detach().contiguous()
    if rank:
        dist.send(message, group=group, group_dst=0)
        dist.recv(message, group=group, group_src=0)
    else:
        rooms = [message] + [torch.empty_like(message) for _ in range(1, size)]
        for peer in range(1, size):
            dist.recv(rooms[peer], group=group, group_src=peer)
        message = _fold(rooms, op)
        for peer in range(1, size):
            dist.send(message, group=group, group_dst=peer)
    tensor.detach().copy_(message)


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
