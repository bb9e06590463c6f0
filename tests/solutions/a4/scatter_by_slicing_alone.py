"""Slices, and leaves the backward of slicing to autograd."""

import torch.distributed as dist

TASK = "a4.scatter_to_tensor_parallel"
EXPECT = {
    "status": "failed",
    "check": "is right forward and backward",
    "cause": "only the rank's own share is there, the others' are zeros",
}


def scatter_to_tensor_parallel(tensor, group=None):
    size = dist.get_world_size(group)
    if tensor.shape[-1] % size:
        raise ValueError(f"{tensor.shape[-1]} columns on {size} ranks")
    return tensor.chunk(size, -1)[dist.get_rank(group)].contiguous()
