"""Biases are added to a rank's own tokens, and hooks sum their gradients."""

import torch.distributed as dist
from torch.nn import functional as F

from ..a4_tensor_parallel.dense import attend, dropout, split_heads
from .sequence import SequenceParallelBlock as Solved
from .sequence import (
    _GatherLinear,
    generator_of_rank,
    reduce_scatter_to_sequence_parallel,
)

TASK = "a5.SequenceParallelBlock"
EXPECT = "passed"


def add_bias(y, bias, group):
    if bias is None:
        return y

    def total(gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=group)
        return gradient

    used = bias.view_as(bias)
    if used.requires_grad and dist.get_world_size(group) > 1:
        used.register_hook(total)
    return y + used


class SequenceParallelBlock(Solved):
    def forward(self, x):
        drops = self.training and max(self.dropout, self.attention_dropout) > 0
        generator = generator_of_rank(x.device, self.group) if drops else None
        h = self.attention_norm(x)
        layers = [self.attention[name] for name in ("query", "key", "value")]
        wide = _GatherLinear.apply(self.group, h, *[p for f in layers for p in (f.weight, f.bias)])
        heads = [split_heads(each, self.head_dim) for each in wide]
        out = attend(*heads, self.causal, self.attention_dropout, self.training, generator)
        output = self.attention["output"]
        y = add_bias(
            reduce_scatter_to_sequence_parallel(F.linear(out, output.weight), self.group),
            output.bias,
            self.group,
        )
        x = x + dropout(y, self.dropout, self.training, generator)
        up, down = self.mlp["up"], self.mlp["down"]
        (wide,) = _GatherLinear.apply(self.group, self.mlp_norm(x), up.weight, up.bias)
        y = add_bias(
            reduce_scatter_to_sequence_parallel(F.linear(F.gelu(wide), down.weight), self.group),
            down.bias,
            self.group,
        )
        return x + dropout(y, self.dropout, self.training, generator)
