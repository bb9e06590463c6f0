"""Rounds the share down."""

import torch
import torch.distributed as dist

TASK = "a4.scatter_to_tensor_parallel"
EXPECT = {
    "status": "failed",
    "check": "refuses sizes",
    "cause": "loses its remainder silently",
}


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        share = tensor.shape[-1] // dist.get_world_size(group)
        return tensor.narrow(-1, dist.get_rank(group) * share, share).clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        parts = [torch.empty_like(gradient) for _ in range(dist.get_world_size(ctx.group))]
        dist.all_gather(parts, gradient, group=ctx.group)
        return torch.cat(parts, -1), None


def scatter_to_tensor_parallel(tensor, group=None):
    return Wrong.apply(tensor, group)
