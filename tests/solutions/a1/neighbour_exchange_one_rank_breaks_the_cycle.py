"""Right: blocking calls, and rank 0 alone receives first, which is enough to break the cycle."""

import torch
import torch.distributed as dist

TASK = "a1.neighbour_exchange"
EXPECT = "passed"


def neighbour_exchange(tensor, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    received = []
    for step in (1, -1):
        buffer = tensor.detach().clone(memory_format=torch.contiguous_format)
        if size > 1 and rank == 0:
            dist.recv(buffer, group=group, group_src=-step % size)
            dist.send(tensor.contiguous(), group=group, group_dst=step % size)
        elif size > 1:
            dist.send(tensor.contiguous(), group=group, group_dst=(rank + step) % size)
            dist.recv(buffer, group=group, group_src=(rank - step) % size)
        received.append(buffer)
    return tuple(received)
