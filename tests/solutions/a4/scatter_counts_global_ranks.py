"""Takes the global rank where the rank of the group is meant."""

import torch
import torch.distributed as dist

TASK = "a4.scatter_to_tensor_parallel"
EXPECT = {
    "status": "failed",
    "check": "works in sub-groups",
    "cause": "the share of group rank 0, not of group rank 1",
}


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        size = dist.get_world_size(group)
        if tensor.shape[-1] % size:
            raise ValueError(f"{tensor.shape[-1]} columns on {size} ranks")
        return tensor.chunk(size, -1)[dist.get_rank() % size].clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        parts = [torch.empty_like(gradient) for _ in range(dist.get_world_size(ctx.group))]
        dist.all_gather(parts, gradient, group=ctx.group)
        return torch.cat(parts, -1), None


def scatter_to_tensor_parallel(tensor, group=None):
    return Wrong.apply(tensor, group)
