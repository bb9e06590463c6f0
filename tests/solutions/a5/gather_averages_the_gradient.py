"""Averages, as if it were data parallelism."""

import torch
import torch.distributed as dist

TASK = "a5.gather_from_sequence_parallel"
EXPECT = {
    "status": "failed",
    "check": "is right forward and backward",
    "cause": "averaged over the ranks",
}


class Mapping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        parts = [torch.empty_like(tensor.contiguous()) for _ in range(size)]
        dist.all_gather(parts, tensor.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient):
        group = ctx.group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        gradient = gradient.contiguous()
        parts = [part.contiguous() for part in gradient.chunk(size)]
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts, group=group)
        return own / size, None


def gather_from_sequence_parallel(tensor, group=None):
    return Mapping.apply(tensor, group)
