"""Hooks on the parameters sum their gradients, one after the other."""

import torch.distributed as dist
from torch.nn import functional as F

from .sequence import SequenceParallelLayerNorm as Solved

TASK = "a5.SequenceParallelLayerNorm"
EXPECT = "passed"


class SequenceParallelLayerNorm(Solved):
    @classmethod
    def from_dense(cls, norm, group=None):
        layer = super().from_dense(norm, group)

        def total(gradient):
            gradient = gradient.clone()
            if dist.get_world_size(group) > 1:
                dist.all_reduce(gradient, group=group)
            return gradient

        for parameter in layer.parameters():
            if parameter.requires_grad:
                parameter.register_hook(total)
        return layer

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)
