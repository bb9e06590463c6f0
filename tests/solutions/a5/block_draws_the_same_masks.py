"""All masks from the default generators, which agree."""

from torch.nn import functional as F

from ..a4_tensor_parallel.dense import attend, dropout, split_heads
from .sequence import SequenceParallelBlock as Solved
from .sequence import (
    _GatherLinear,
    _LinearReduceScatter,
)

TASK = "a5.SequenceParallelBlock"
EXPECT = {
    "status": "failed",
    "check": "draws other masks",
    "cause": "must draw other random numbers",
}


class SequenceParallelBlock(Solved):
    def forward(self, x):
        generator = None
        h = self.attention_norm(x)
        layers = [self.attention[name] for name in ("query", "key", "value")]
        wide = _GatherLinear.apply(self.group, h, *[p for f in layers for p in (f.weight, f.bias)])
        heads = [split_heads(each, self.head_dim) for each in wide]
        out = attend(*heads, self.causal, self.attention_dropout, self.training, generator)
        output = self.attention["output"]
        y = _LinearReduceScatter.apply(self.group, out, output.weight, output.bias)
        x = x + dropout(y, self.dropout, self.training, generator)
        up, down = self.mlp["up"], self.mlp["down"]
        (wide,) = _GatherLinear.apply(self.group, self.mlp_norm(x), up.weight, up.bias)
        y = _LinearReduceScatter.apply(self.group, F.gelu(wide), down.weight, down.bias)
        return x + dropout(y, self.dropout, self.training, generator)
