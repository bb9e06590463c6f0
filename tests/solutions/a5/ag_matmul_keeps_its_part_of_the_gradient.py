"""The gradient of a is this rank's columns' part of it."""

import torch
import torch.distributed as dist

from .overlap import gathered_product
from .sequence import all_gathered

TASK = "a5.all_gather_matmul"
EXPECT = {
    "status": "failed",
    "check": "gives both arguments their gradients",
    "cause": "made of this rank's columns only",
}


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, group):
        ctx.save_for_backward(a, b)
        ctx.group = group
        return gathered_product(a, b, group)

    @staticmethod
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors
        own = gradient.chunk(dist.get_world_size(ctx.group))[dist.get_rank(ctx.group)]
        return own @ b.t(), all_gathered(a, ctx.group).t() @ gradient, None


def all_gather_matmul(a, b, group=None):
    return Product.apply(a, b, group)
