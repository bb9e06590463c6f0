"""Gathers all partial results, then adds them up."""

import torch
import torch.distributed as dist

TASK = "a4.reduce_from_tensor_parallel"
EXPECT = {
    "status": "failed",
    "check": "sends what one collective sends",
    "cause": "everything is gathered and summed on every rank",
}


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        parts = [torch.empty_like(tensor.contiguous()) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, tensor.contiguous(), group=group)
        return torch.stack(parts).sum(0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def reduce_from_tensor_parallel(tensor, group=None):
    return Wrong.apply(tensor, group)
