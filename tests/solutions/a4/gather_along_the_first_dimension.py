"""Joins rows where columns are meant."""

import torch
import torch.distributed as dist

TASK = "a4.gather_from_tensor_parallel"
EXPECT = {
    "status": "failed",
    "check": "is right forward and backward",
    "cause": "joined along dimension 0, not -1",
}


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        parts = [torch.empty_like(tensor.contiguous()) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, tensor.contiguous(), group=group)
        return torch.cat(parts, 0)

    @staticmethod
    def backward(ctx, gradient):
        shares = gradient.chunk(dist.get_world_size(ctx.group), 0)
        return shares[dist.get_rank(ctx.group)].clone(), None


def gather_from_tensor_parallel(tensor, group=None):
    return Wrong.apply(tensor, group)
