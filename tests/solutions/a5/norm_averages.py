"""Averages the parameters' gradients over the ranks."""

import torch.distributed as dist
from torch.nn import functional as F

from .sequence import SequenceParallelLayerNorm as Solved

TASK = "a5.SequenceParallelLayerNorm"
EXPECT = {
    "status": "failed",
    "check": "equals the dense norm",
    "cause": "the gradient is averaged",
}


class SequenceParallelLayerNorm(Solved):
    def forward(self, x):
        size = dist.get_world_size(self.group)

        def average(gradient):
            gradient = gradient.clone()
            dist.all_reduce(gradient, group=self.group)
            return gradient / size

        whole = []
        for parameter in (self.weight, self.bias):
            used = None if parameter is None else parameter * 1
            if used is not None and used.requires_grad:
                used.register_hook(average)
            whole.append(used)
        return F.layer_norm(x, x.shape[-1:], *whole, self.eps)
