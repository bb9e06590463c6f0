"""All ranks draw from generators that agree: heads of different ranks get one mask."""

from torch.nn import functional as F

from .dense import attend, split_heads
from .mappings import copy_to_tensor_parallel
from .transformer import ParallelAttention as Solved

TASK = "a4.ParallelAttention"
EXPECT = {
    "status": "failed",
    "check": "draws other masks",
    "cause": "must draw other random numbers",
}


class ParallelAttention(Solved):
    def forward(self, x):
        x = copy_to_tensor_parallel(x, self.group)
        heads = [
            split_heads(F.linear(x, f.weight, f.bias), self.head_dim)
            for f in (self.query, self.key, self.value)
        ]
        return self.output(attend(*heads, self.causal, self.dropout, self.training))
