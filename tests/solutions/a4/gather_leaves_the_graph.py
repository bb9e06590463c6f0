"""A collective on its own is no part of autograd's graph."""

import torch
import torch.distributed as dist

TASK = "a4.gather_from_tensor_parallel"
EXPECT = {
    "status": "error",
    "check": "is right forward and backward",
    "cause": "does not require grad",
}


def gather_from_tensor_parallel(tensor, group=None):
    parts = [torch.empty_like(tensor.detach()) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, tensor.detach().contiguous(), group=group)
    return torch.cat(parts, -1)
