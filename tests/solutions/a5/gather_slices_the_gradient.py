"""A slice of the gradient, as in tensor parallelism, where a sum over the ranks is meant."""

import torch
import torch.distributed as dist

TASK = "a5.gather_from_sequence_parallel"
EXPECT = {
    "status": "failed",
    "check": "is right forward and backward",
    "cause": "nothing was summed",
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
        return gradient.chunk(size)[rank].clone(), None


def gather_from_sequence_parallel(tensor, group=None):
    return Mapping.apply(tensor, group)
