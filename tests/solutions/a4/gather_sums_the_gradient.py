"""Sums gradients that are one and the same on all ranks, as torch.distributed.nn does."""

import torch
import torch.distributed as dist

TASK = "a4.gather_from_tensor_parallel"
EXPECT = {
    "status": "failed",
    "check": "is right forward and backward",
    "cause": "n times too large",
}


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        parts = [torch.empty_like(tensor.contiguous()) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, tensor.contiguous(), group=group)
        return torch.cat(parts, -1)

    @staticmethod
    def backward(ctx, gradient):
        parts = [p.contiguous() for p in gradient.chunk(dist.get_world_size(ctx.group), -1)]
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts, group=ctx.group)
        return own, None


def gather_from_tensor_parallel(tensor, group=None):
    return Wrong.apply(tensor, group)
