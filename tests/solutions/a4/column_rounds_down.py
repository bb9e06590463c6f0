"""Sizes that do not divide lose their last rows."""

import torch.distributed as dist
from torch import nn

from .layers import ColumnParallelLinear as Solved

TASK = "a4.ColumnParallelLinear"
EXPECT = {
    "status": "failed",
    "check": "refuses sizes",
    "cause": "loses its remainder silently",
}


class ColumnParallelLinear(Solved):
    @classmethod
    def from_linear(cls, linear, group=None, gather_output=False):
        layer = cls()
        layer.group, layer.gather_output = group, gather_output
        share = linear.out_features // dist.get_world_size(group)
        rows = slice(dist.get_rank(group) * share, (dist.get_rank(group) + 1) * share)
        layer.weight = nn.Parameter(linear.weight.detach()[rows].clone())
        layer.bias = linear.bias
        if linear.bias is not None:
            layer.bias = nn.Parameter(linear.bias.detach()[rows].clone())
        return layer
