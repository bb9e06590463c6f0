"""Backward gathers into views of one buffer."""

import torch
import torch.distributed as dist

TASK = "a5.scatter_to_sequence_parallel"
EXPECT = "passed"


class Mapping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        if tensor.shape[0] % size:
            raise ValueError(f"{tensor.shape[0]} tokens on {size} ranks")
        return tensor.tensor_split(size)[rank].clone()

    @staticmethod
    def backward(ctx, gradient):
        group = ctx.group
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        gradient = gradient.contiguous()
        whole = gradient.new_empty((size * gradient.shape[0], *gradient.shape[1:]))
        dist.all_gather(list(whole.tensor_split(size)), gradient, group=group)
        return whole, None


def scatter_to_sequence_parallel(tensor, group=None):
    return Mapping.apply(tensor, group)
