"""Sums whole sequences that are zeros but for the rank's own chunks."""

import torch.distributed as dist

TASK = "a5.zigzag_unshard"
EXPECT = {
    "status": "failed",
    "check": "sends one all-gather",
    "cause": "an all-reduce moves twice what an all-gather does",
}


def zigzag_unshard(tensor, dim, group=None):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    if tensor.shape[dim] % 2:
        raise ValueError(f"{tensor.shape[dim]} tokens are no two chunks")
    half = tensor.shape[dim] // 2
    shape = list(tensor.shape)
    shape[dim] *= size
    whole = tensor.new_zeros(shape)
    first, last = tensor.chunk(2, dim)
    whole.narrow(dim, rank * half, half).copy_(first)
    whole.narrow(dim, (2 * size - 1 - rank) * half, half).copy_(last)
    dist.all_reduce(whole, group=group)
    return whole
