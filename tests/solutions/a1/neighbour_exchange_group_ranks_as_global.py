"""Hands group ranks to calls that take global ones."""

import torch
import torch.distributed as dist

TASK = "a1.neighbour_exchange"
EXPECT = {
    "status": "error",
    "check": "works in sub-groups",
    "cause": "group rank",
}


def neighbour_exchange(tensor, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if size == 1:
        return tensor.clone(), tensor.clone()
    from_previous, from_next = (
        torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(2)
    )
    following, previous = (rank + 1) % size, (rank - 1) % size
    message = tensor.contiguous()
    batch = [
        dist.P2POp(dist.isend, message, following, group),
        dist.P2POp(dist.isend, message, previous, group),
        dist.P2POp(dist.irecv, from_previous, previous, group),
        dist.P2POp(dist.irecv, from_next, following, group),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return from_previous, from_next
