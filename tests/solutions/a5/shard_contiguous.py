"""A contiguous share."""

import torch.distributed as dist

TASK = "a5.zigzag_shard"
EXPECT = {
    "status": "failed",
    "check": "cuts chunks",
    "cause": "a contiguous share",
}


def zigzag_shard(tensor, dim, group=None):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    if tensor.shape[dim] % (2 * size):
        raise ValueError(f"{tensor.shape[dim]} is no multiple of {2 * size}")
    return tensor.chunk(size, dim)[rank].clone()
