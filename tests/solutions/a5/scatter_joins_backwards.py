"""Joins the gradients' shares last rank first."""

import torch
import torch.distributed as dist

TASK = "a5.scatter_to_sequence_parallel"
EXPECT = {
    "status": "failed",
    "check": "is right forward and backward",
    "cause": "from the last rank to the first",
}


class Mapping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        if tensor.shape[0] % size:
            raise ValueError(f"{tensor.shape[0]} tokens on {size} ranks")
        return tensor.chunk(size)[rank].clone()

    @staticmethod
    def backward(ctx, gradient):
        group = ctx.group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        gradient = gradient.contiguous()
        parts = [torch.empty_like(gradient) for _ in range(size)]
        dist.all_gather(parts, gradient, group=group)
        return torch.cat(parts[::-1]), None


def scatter_to_sequence_parallel(tensor, group=None):
    return Mapping.apply(tensor, group)
