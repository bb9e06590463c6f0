"""Every rank keeps all key-value heads, and takes its own out of what they make."""

import copy

import torch.distributed as dist
from torch.nn import functional as F

from .dense import attend, split_heads
from .mappings import copy_to_tensor_parallel
from .transformer import ParallelAttention as Solved

TASK = "a4.ParallelAttention"
EXPECT = {
    "status": "failed",
    "check": "keeps its own shards only",
    "cause": "this parameter was not cut",
}


class ParallelAttention(Solved):
    @classmethod
    def from_dense(cls, module, group=None):
        parallel = super().from_dense(module, group)
        parallel.key, parallel.value = copy.deepcopy(module.key), copy.deepcopy(module.value)
        return parallel

    def forward(self, x):
        x = copy_to_tensor_parallel(x, self.group)
        query = split_heads(F.linear(x, self.query.weight, self.query.bias), self.head_dim)
        size, rank = dist.get_world_size(self.group), dist.get_rank(self.group)
        key, value = (
            split_heads(f(x), self.head_dim).chunk(size, 1)[rank] for f in (self.key, self.value)
        )
        return self.output(attend(query, key, value, self.causal))
