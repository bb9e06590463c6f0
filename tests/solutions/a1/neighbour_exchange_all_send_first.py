"""Every rank sends before it receives: a cycle of sends that wait for their receivers."""

import torch
import torch.distributed as dist

TASK = "a1.neighbour_exchange"
EXPECT = {
    "status": "failed",
    "check": "returns both neighbours",
    "cause": "every rank sends before it receives",
}


def neighbour_exchange(tensor, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if size == 1:
        return tensor.clone(), tensor.clone()
    from_previous, from_next = (
        torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(2)
    )
    following, previous = (rank + 1) % size, (rank - 1) % size
    dist.send(tensor.contiguous(), group=group, group_dst=following)
    dist.recv(from_previous, group=group, group_src=previous)
    dist.send(tensor.contiguous(), group=group, group_dst=previous)
    dist.recv(from_next, group=group, group_src=following)
    return from_previous, from_next
