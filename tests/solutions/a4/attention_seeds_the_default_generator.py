"""Seeds the default generator by rank: all that is replicated differs from now on."""

import torch
import torch.distributed as dist
from torch.nn import functional as F

from .dense import attend, split_heads
from .mappings import copy_to_tensor_parallel
from .transformer import ParallelAttention as Solved

TASK = "a4.ParallelAttention"
EXPECT = {
    "status": "failed",
    "check": "draws other masks",
    "cause": "default generator that was seeded by rank",
}


class ParallelAttention(Solved):
    def forward(self, x):
        x = copy_to_tensor_parallel(x, self.group)
        heads = [
            split_heads(F.linear(x, f.weight, f.bias), self.head_dim)
            for f in (self.query, self.key, self.value)
        ]
        if self.training and self.dropout > 0:
            torch.manual_seed(1000 + dist.get_rank(self.group))
        return self.output(attend(*heads, self.causal, self.dropout, self.training))
