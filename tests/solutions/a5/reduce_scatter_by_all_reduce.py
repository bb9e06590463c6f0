"""All-reduces, then keeps a share."""

import torch
import torch.distributed as dist

TASK = "a5.reduce_scatter_to_sequence_parallel"
EXPECT = {
    "status": "failed",
    "check": "sends what one collective sends",
    "cause": "an all-reduce moves twice what a reduce-scatter does",
}


class Mapping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        if tensor.shape[0] % size:
            raise ValueError(f"{tensor.shape[0]} tokens on {size} ranks")
        total = tensor.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total.chunk(size)[rank].clone()

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
