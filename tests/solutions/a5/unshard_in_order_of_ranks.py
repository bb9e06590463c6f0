"""Joins the shares as if they were contiguous."""

import torch
import torch.distributed as dist

TASK = "a5.zigzag_unshard"
EXPECT = {
    "status": "failed",
    "check": "joins what was cut",
    "cause": "their halves belong apart",
}


def zigzag_unshard(tensor, dim, group=None):
    size = dist.get_world_size(group)
    if tensor.shape[dim] % 2:
        raise ValueError(f"{tensor.shape[dim]} tokens are no two chunks")
    tensor = tensor.contiguous()
    parts = [torch.empty_like(tensor) for _ in range(size)]
    dist.all_gather(parts, tensor, group=group)
    return torch.cat(parts, dim)
