"""All vectors to rank 0, and the result back: a parameter server."""

import torch
import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = {
    "status": "failed",
    "check": "sends to the next rank only",
    "cause": "parameter server",
}


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    _check(tensor, op)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    total = tensor.contiguous()
    if rank == 0:
        for peer in range(1, size):
            other = torch.empty_like(total)
            dist.recv(other, group=group, group_src=peer)
            total = _merge(total, other, op)
        total = total / size if op == dist.ReduceOp.AVG else total
        for peer in range(1, size):
            dist.send(total, group=group, group_dst=peer)
    else:
        dist.send(total, group=group, group_dst=0)
        dist.recv(total, group=group, group_src=0)
    tensor.copy_(total)


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
