"""Partners by exclusive or: a power of two only."""

import torch
import torch.distributed as dist

TASK = "a1.barrier"
EXPECT = {
    "status": "failed",
    "check": "lets nobody leave before all have come",
    "cause": "power of two",
}


def barrier(group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    distance = 1
    while distance < size:
        partner = rank ^ distance
        if partner < size:
            batch = [
                dist.P2POp(dist.isend, torch.zeros(1), group=group, group_peer=partner),
                dist.P2POp(dist.irecv, torch.zeros(1), group=group, group_peer=partner),
            ]
            for work in dist.batch_isend_irecv(batch):
                work.wait()
        distance *= 2
