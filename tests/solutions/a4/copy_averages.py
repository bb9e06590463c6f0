"""Averages, as if it were data parallelism."""

import torch
import torch.distributed as dist

TASK = "a4.copy_to_tensor_parallel"
EXPECT = {
    "status": "failed",
    "check": "is right forward and backward",
    "cause": "averaged over the ranks",
}


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total / dist.get_world_size(ctx.group), None


def copy_to_tensor_parallel(tensor, group=None):
    return Wrong.apply(tensor, group)
