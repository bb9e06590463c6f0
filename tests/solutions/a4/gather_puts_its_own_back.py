"""Joins the others' shares with its own tensor, whose part of the graph does the rest."""

import torch
import torch.distributed as dist

TASK = "a4.gather_from_tensor_parallel"
EXPECT = "passed"


def gather_from_tensor_parallel(tensor, group=None):
    own = tensor.detach().contiguous()
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, own, group=group)
    parts[dist.get_rank(group)] = tensor
    return torch.cat(parts, -1)
