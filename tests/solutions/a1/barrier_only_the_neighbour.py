"""Waits for the previous rank only."""

import torch
import torch.distributed as dist

TASK = "a1.barrier"
EXPECT = {
    "status": "failed",
    "check": "lets nobody leave before all have come",
    "cause": "had not heard of",
}


def barrier(group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if size == 1:
        return
    batch = [
        dist.P2POp(dist.isend, torch.zeros(1), group=group, group_peer=(rank + 1) % size),
        dist.P2POp(dist.irecv, torch.zeros(1), group=group, group_peer=(rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
