"""Returns the buffers at once and drops the handles."""

import torch
import torch.distributed as dist

TASK = "a1.neighbour_exchange"
EXPECT = {
    "status": "failed",
    "check": "returns both neighbours",
    "cause": "wait()",
}


def neighbour_exchange(tensor, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if size == 1:
        return tensor.clone(), tensor.clone()
    from_previous, from_next = (
        torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(2)
    )
    message = tensor.contiguous()
    dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, message, group=group, group_peer=(rank + 1) % size),
            dist.P2POp(dist.isend, message, group=group, group_peer=(rank - 1) % size),
            dist.P2POp(dist.irecv, from_previous, group=group, group_peer=(rank - 1) % size),
            dist.P2POp(dist.irecv, from_next, group=group, group_peer=(rank + 1) % size),
        ]
    )
    return from_previous, from_next
