"""Drops the work handles."""

import torch
import torch.distributed as dist

TASK = "a2.ring_all_gather"
EXPECT = {
    "status": "failed",
    "cause": "wait()",
    "check": "puts every rank's chunk in its place",
}


def ring_all_gather(output, tensor, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    _check_shapes(output, tensor, size)
    chunks = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(size)]
    chunks[rank].copy_(tensor)
    for step in range(size - 1):
        send, receive = chunks[(rank - step) % size], chunks[(rank - 1 - step) % size]
        both = [
            dist.P2POp(dist.isend, send, group=group, group_peer=(rank + 1) % size),
            dist.P2POp(dist.irecv, receive, group=group, group_peer=(rank - 1) % size),
        ]
        dist.batch_isend_irecv(both)
    output.copy_(torch.cat(chunks))


def _check_shapes(whole, chunk, size):
    if whole.shape[0] != size * chunk.shape[0] or whole.shape[1:] != chunk.shape[1:]:
        raise ValueError(
            f"tensor {tuple(whole.shape)} is not {size} times output {tuple(chunk.shape)}"
        )
