"""Joins in the order of ranks, then sorts by the place that each token had."""

import torch
import torch.distributed as dist

TASK = "a5.zigzag_unshard"
EXPECT = "passed"


def zigzag_unshard(tensor, dim, group=None):
    size = dist.get_world_size(group)
    if tensor.shape[dim] % 2:
        raise ValueError(f"{tensor.shape[dim]} tokens are no two chunks")
    tensor = tensor.contiguous()
    parts = [torch.empty_like(tensor) for _ in range(size)]
    dist.all_gather(parts, tensor, group=group)
    length = tensor.shape[dim] // 2
    chunks = [chunk for i in range(size) for chunk in (i, 2 * size - 1 - i)]
    places = (torch.tensor(chunks).unsqueeze(1) * length + torch.arange(length)).flatten()
    return torch.cat(parts, dim).index_select(dim, places.argsort())
