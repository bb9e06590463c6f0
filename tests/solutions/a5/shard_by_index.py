"""Takes the places that belong to the rank out of a folded arrangement."""

import torch
import torch.distributed as dist

TASK = "a5.zigzag_shard"
EXPECT = "passed"


def zigzag_shard(tensor, dim, group=None):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    if tensor.shape[dim] % (2 * size):
        raise ValueError(f"{tensor.shape[dim]} is no multiple of {2 * size}")
    places = torch.arange(tensor.shape[dim]).view(2, size, -1)
    own = torch.cat([places[0, rank], places[1].flip(0)[rank]])
    return tensor.index_select(dim, own.to(tensor.device))
