"""Slices, and leaves the backward of slicing to autograd."""

import torch.distributed as dist

TASK = "a5.scatter_to_sequence_parallel"
EXPECT = {
    "status": "failed",
    "check": "is right forward and backward",
    "cause": "only the rank's own share is there, the others' are zeros",
}


def scatter_to_sequence_parallel(tensor, group=None):
    size = dist.get_world_size(group)
    if tensor.shape[0] % size:
        raise ValueError(f"{tensor.shape[0]} tokens on {size} ranks")
    return tensor.chunk(size)[dist.get_rank(group)].clone()
