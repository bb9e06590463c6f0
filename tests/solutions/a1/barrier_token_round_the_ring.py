"""A token goes round the ring twice: right, in 2p - 1 rounds."""

import torch
import torch.distributed as dist

TASK = "a1.barrier"
EXPECT = {
    "status": "failed",
    "check": "takes the rounds and messages of a dissemination barrier",
    "cause": "one rank after the other",
}


def barrier(group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if size == 1:
        return
    token = torch.zeros(1)
    for lap in range(2):
        if rank or lap:
            dist.recv(token, group=group, group_src=(rank - 1) % size)
        if not lap or rank < size - 1:
            dist.send(token, group=group, group_dst=(rank + 1) % size)
