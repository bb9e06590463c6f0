"""Ordinary small nn.Linear layers between f and g; the bias comes after the sum."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from .mappings import copy_to_tensor_parallel, reduce_from_tensor_parallel

TASK = "a4.ParallelMLP"
EXPECT = "passed"


class ParallelMLP(nn.Module):
    @classmethod
    def from_dense(cls, module, group=None):
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        inner, hidden = module.up.weight.shape
        if inner % size:
            raise ValueError(f"intermediate of {inner} on {size} ranks")
        bias = module.up.bias is not None
        parallel = cls()
        parallel.group = group
        kind = {"dtype": module.up.weight.dtype}
        parallel.up = nn.Linear(hidden, inner // size, bias, **kind)
        parallel.down = nn.Linear(inner // size, hidden, bias, **kind)
        with torch.no_grad():
            parallel.up.weight.copy_(module.up.weight.chunk(size)[rank])
            parallel.down.weight.copy_(module.down.weight.chunk(size, 1)[rank])
            if bias:
                parallel.up.bias.copy_(module.up.bias.chunk(size)[rank])
                parallel.down.bias.copy_(module.down.bias)
        return parallel

    def forward(self, x):
        x = self.up(copy_to_tensor_parallel(x, self.group))
        y = reduce_from_tensor_parallel(F.gelu(x) @ self.down.weight.t(), self.group)
        return y if self.down.bias is None else y + self.down.bias
