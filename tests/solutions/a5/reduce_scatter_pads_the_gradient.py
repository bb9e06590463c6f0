"""Backward puts the share among zeros, and gathers nothing."""

import torch
import torch.distributed as dist

TASK = "a5.reduce_scatter_to_sequence_parallel"
EXPECT = {
    "status": "failed",
    "check": "is right forward and backward",
    "cause": "only the rank's own share is there, the others' are zeros",
}


class Mapping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        if tensor.shape[0] % size:
            raise ValueError(f"{tensor.shape[0]} tokens on {size} ranks")
        parts = [part.contiguous() for part in tensor.chunk(size)]
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts, group=group)
        return own

    @staticmethod
    def backward(ctx, gradient):
        group = ctx.group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        gradient = gradient.contiguous()
        whole = gradient.new_zeros((size * gradient.shape[0], *gradient.shape[1:]))
        whole.chunk(size)[rank].copy_(gradient)
        return whole, None


def reduce_scatter_to_sequence_parallel(tensor, group=None):
    return Mapping.apply(tensor, group)
