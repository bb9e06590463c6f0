"""Query, key and value each send a gradient of x."""

from .dense import attend, split_heads
from .transformer import ParallelAttention as Solved

TASK = "a4.ParallelAttention"
EXPECT = {
    "status": "failed",
    "check": "sends one all-reduce forward",
    "cause": "put one f before all three",
}


class ParallelAttention(Solved):
    def forward(self, x):
        heads = [split_heads(f(x), self.head_dim) for f in (self.query, self.key, self.value)]
        return self.output(attend(*heads, self.causal))
