"""Rounds the share down."""

import torch
import torch.distributed as dist

TASK = "a5.scatter_to_sequence_parallel"
EXPECT = {
    "status": "failed",
    "check": "refuses sizes",
    "cause": "loses its remainder silently",
}


class Mapping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        share = tensor.shape[0] // size
        return tensor[rank * share : (rank + 1) * share].clone()

    @staticmethod
    def backward(ctx, gradient):
        group = ctx.group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        gradient = gradient.contiguous()
        parts = [torch.empty_like(gradient.contiguous()) for _ in range(size)]
        dist.all_gather(parts, gradient.contiguous(), group=group)
        return torch.cat(parts), None


def scatter_to_sequence_parallel(tensor, group=None):
    return Mapping.apply(tensor, group)
