"""Every rank signals all others at once: right, but p − 1 messages from each."""

import torch
import torch.distributed as dist

TASK = "a1.barrier"
EXPECT = {
    "status": "failed",
    "check": "takes the rounds and messages of a dissemination barrier",
    "cause": "every rank sends to everybody, not at distances 2^k",
}


def barrier(group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    others = [peer for peer in range(size) if peer != rank]
    if not others:
        return
    token, rooms = torch.zeros(1), torch.zeros(size, 1)
    batch = [dist.P2POp(dist.isend, token, group=group, group_peer=peer) for peer in others]
    batch += [dist.P2POp(dist.irecv, rooms[peer], group=group, group_peer=peer) for peer in others]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
