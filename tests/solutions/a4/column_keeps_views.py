"""Shards are views: every rank keeps the whole weight alive."""

import torch.distributed as dist
from torch import nn

from .layers import ColumnParallelLinear as Solved

TASK = "a4.ColumnParallelLinear"
EXPECT = {
    "status": "failed",
    "check": "keeps its own shards only",
    "cause": "the shard is a view",
}


class ColumnParallelLinear(Solved):
    @classmethod
    def from_linear(cls, linear, group=None, gather_output=False):
        layer = super().from_linear(linear, group, gather_output)
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        layer.weight = nn.Parameter(linear.weight.detach().chunk(size)[rank])
        return layer
