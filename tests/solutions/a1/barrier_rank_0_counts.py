"""Everybody reports to rank 0, which then tells everybody: right, but all through one rank."""

import torch
import torch.distributed as dist

TASK = "a1.barrier"
EXPECT = {
    "status": "failed",
    "check": "takes the rounds and messages of a dissemination barrier",
    "cause": "one rank sends to all",
}


def barrier(group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    token = torch.zeros(1)
    if rank:
        dist.send(token, group=group, group_dst=0)
        dist.recv(token, group=group, group_src=0)
        return
    for peer in range(1, size):
        dist.recv(token, group=group, group_src=peer)
    for peer in range(1, size):
        dist.send(token, group=group, group_dst=peer)
