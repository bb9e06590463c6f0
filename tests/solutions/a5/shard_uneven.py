"""Whatever torch.tensor_split makes of it."""

import torch
import torch.distributed as dist

TASK = "a5.zigzag_shard"
EXPECT = {
    "status": "failed",
    "check": "refuses sizes",
    "cause": "loses its remainder silently",
}


def zigzag_shard(tensor, dim, group=None):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    chunks = tensor.tensor_split(2 * size, dim)
    return torch.cat([chunks[rank], chunks[2 * size - 1 - rank]], dim)
