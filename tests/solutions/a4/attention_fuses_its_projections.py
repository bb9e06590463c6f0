"""One product for query, key and value; masks from a generator that is forked by rank."""

import torch
import torch.distributed as dist
from torch.nn import functional as F

from .dense import attend, split_heads
from .mappings import copy_to_tensor_parallel
from .transformer import ParallelAttention as Solved

TASK = "a4.ParallelAttention"
EXPECT = "passed"


class ParallelAttention(Solved):
    def forward(self, x):
        layers = (self.query, self.key, self.value)
        biases = [f.bias for f in layers]
        weight = torch.cat([f.weight for f in layers])
        bias = None if biases[0] is None else torch.cat(biases)
        wide = F.linear(copy_to_tensor_parallel(x, self.group), weight, bias)
        widths = [f.weight.shape[0] for f in layers]
        heads = [split_heads(part, self.head_dim) for part in wide.split(widths, -1)]
        with torch.random.fork_rng(devices=[]):
            seed = torch.randint(1 << 30, ()).item()
            torch.manual_seed(seed + 1 + dist.get_rank(self.group))
            out = attend(*heads, self.causal, self.dropout, self.training)
        return self.output(out)
