"""Takes the backward of an all-reduce for an all-reduce."""

import torch
import torch.distributed as dist

TASK = "a4.reduce_from_tensor_parallel"
EXPECT = {
    "status": "failed",
    "check": "is right forward and backward",
    "cause": "summed over the ranks, where each has the whole",
}


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        total = tensor.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


def reduce_from_tensor_parallel(tensor, group=None):
    return Wrong.apply(tensor, group)
