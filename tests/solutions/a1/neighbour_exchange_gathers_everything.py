"""Sends its tensor to everybody and keeps two of what it gets."""

import torch
import torch.distributed as dist

TASK = "a1.neighbour_exchange"
EXPECT = {
    "status": "failed",
    "check": "talks to its two neighbours only",
    "cause": "not its neighbour",
}


def neighbour_exchange(tensor, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if size == 1:
        return tensor.clone(), tensor.clone()
    message = tensor.contiguous()
    everything = [torch.empty_like(message) for _ in range(size)]
    batch = []
    for peer in range(size):
        if peer != rank:
            batch.append(dist.P2POp(dist.isend, message, group=group, group_peer=peer))
            batch.append(dist.P2POp(dist.irecv, everything[peer], group=group, group_peer=peer))
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return everything[(rank - 1) % size].clone(), everything[(rank + 1) % size].clone()
