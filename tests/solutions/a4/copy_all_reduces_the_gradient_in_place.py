"""All-reduces the gradient that autograd still owns: copy(x) + x gives 4 where 3 is right."""

import torch
import torch.distributed as dist

TASK = "a4.copy_to_tensor_parallel"
EXPECT = {
    "status": "failed",
    "check": "changes neither its argument nor a gradient",
    "cause": "backward works in place on the gradient",
}


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


def copy_to_tensor_parallel(tensor, group=None):
    return Wrong.apply(tensor, group)
