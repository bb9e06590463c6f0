"""The sum as a reduce-scatter and an all-gather of flat shares, padded to the ranks."""

import torch
import torch.distributed as dist
from torch.nn import functional as F

from .layers import RowParallelLinear as Solved
from .mappings import scatter_to_tensor_parallel

TASK = "a4.RowParallelLinear"
EXPECT = "passed"


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        size = dist.get_world_size(group)
        if size == 1:
            return tensor.view_as(tensor)
        flat = tensor.flatten()
        flat = F.pad(flat, (0, -flat.numel() % size))
        own = torch.empty_like(flat[: flat.numel() // size])
        dist.reduce_scatter(own, list(flat.chunk(size)), group=group)
        dist.all_gather(list(flat.chunk(size)), own, group=group)
        return flat[: tensor.numel()].view(tensor.shape)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class RowParallelLinear(Solved):
    def forward(self, x):
        if not self.input_is_parallel:
            x = scatter_to_tensor_parallel(x, self.group)
        y = Sum.apply(F.linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias
