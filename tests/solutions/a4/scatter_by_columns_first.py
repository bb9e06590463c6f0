"""Works on the last dimension by bringing it to the front."""

import torch
import torch.distributed as dist

TASK = "a4.scatter_to_tensor_parallel"
EXPECT = "passed"


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        size = dist.get_world_size(group)
        if tensor.shape[-1] % size:
            raise ValueError(f"{tensor.shape[-1]} columns on {size} ranks")
        return tensor.movedim(-1, 0).tensor_split(size)[dist.get_rank(group)].movedim(0, -1).clone()

    @staticmethod
    def backward(ctx, gradient):
        own = gradient.movedim(-1, 0).contiguous()
        size = dist.get_world_size(ctx.group)
        whole = own.new_empty((size, *own.shape))
        dist.all_gather(list(whole), own, group=ctx.group)
        return whole.flatten(0, 1).movedim(0, -1), None


def scatter_to_tensor_parallel(tensor, group=None):
    return Wrong.apply(tensor, group)
