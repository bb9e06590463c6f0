"""Chunks i and n + i, which is no balance."""

import torch
import torch.distributed as dist

TASK = "a5.zigzag_shard"
EXPECT = {
    "status": "failed",
    "check": "cuts chunks",
    "cause": "chunks i and n + i",
}


def zigzag_shard(tensor, dim, group=None):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    if tensor.shape[dim] % (2 * size):
        raise ValueError(f"{tensor.shape[dim]} is no multiple of {2 * size}")
    chunks = tensor.chunk(2 * size, dim)
    return torch.cat([chunks[rank], chunks[size + rank]], dim)
