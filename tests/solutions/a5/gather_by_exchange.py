"""Backward as an all-to-all and a sum on each rank."""

import torch
import torch.distributed as dist

TASK = "a5.gather_from_sequence_parallel"
EXPECT = "passed"


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
        arrived = torch.empty_like(gradient)
        dist.all_to_all_single(arrived, gradient, group=group)
        return torch.stack(arrived.chunk(size)).sum(0), None


def gather_from_sequence_parallel(tensor, group=None):
    return Mapping.apply(tensor, group)
