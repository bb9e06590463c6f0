"""An all-to-all, and a sum on each rank."""

import torch
import torch.distributed as dist

TASK = "a5.reduce_scatter_to_sequence_parallel"
EXPECT = "passed"


class Mapping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        if tensor.shape[0] % size:
            raise ValueError(f"{tensor.shape[0]} tokens on {size} ranks")
        tensor = tensor.contiguous()
        arrived = torch.empty_like(tensor)
        dist.all_to_all_single(arrived, tensor, group=group)
        return torch.stack(arrived.chunk(size)).sum(0)

    @staticmethod
    def backward(ctx, gradient):
        group = ctx.group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        gradient = gradient.contiguous()
        parts = [torch.empty_like(gradient.contiguous()) for _ in range(size)]
        dist.all_gather(parts, gradient.contiguous(), group=group)
        return torch.cat(parts), None


def reduce_scatter_to_sequence_parallel(tensor, group=None):
    return Mapping.apply(tensor, group)
