"""Composes gather and linear layers, each of which keeps the whole sequence for backward."""

from torch.nn import functional as F

from ..a4_tensor_parallel.dense import attend, dropout, split_heads
from .sequence import SequenceParallelBlock as Solved
from .sequence import (
    _LinearReduceScatter,
    gather_from_sequence_parallel,
    generator_of_rank,
)

TASK = "a5.SequenceParallelBlock"
EXPECT = {
    "status": "failed",
    "check": "keeps a share of the dense block's activations",
    "cause": "gathered inputs are kept",
}


class SequenceParallelBlock(Solved):
    def forward(self, x):
        drops = self.training and max(self.dropout, self.attention_dropout) > 0
        generator = generator_of_rank(x.device, self.group) if drops else None
        h = self.attention_norm(x)
        whole = gather_from_sequence_parallel(h, self.group)
        layers = [self.attention[name] for name in ("query", "key", "value")]
        wide = [F.linear(whole, f.weight, f.bias) for f in layers]
        heads = [split_heads(each, self.head_dim) for each in wide]
        out = attend(*heads, self.causal, self.attention_dropout, self.training, generator)
        output = self.attention["output"]
        y = _LinearReduceScatter.apply(self.group, out, output.weight, output.bias)
        x = x + dropout(y, self.dropout, self.training, generator)
        up, down = self.mlp["up"], self.mlp["down"]
        wide = F.linear(
            gather_from_sequence_parallel(self.mlp_norm(x), self.group), up.weight, up.bias
        )
        y = _LinearReduceScatter.apply(self.group, F.gelu(wide), down.weight, down.bias)
        return x + dropout(y, self.dropout, self.training, generator)
