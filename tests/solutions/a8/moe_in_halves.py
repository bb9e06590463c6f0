"""Two halves of the tokens, one after the other; rows are cut by a running sum."""

import torch
import torch.distributed as dist
from torch import nn

from .dispatch import combine, dispatch

TASK = "a8.ExpertParallelMoE"
EXPECT = "passed"


class ExpertParallelMoE(nn.Module):
    def __init__(self, experts, router, group=None):
        super().__init__()
        if not experts:
            raise ValueError(f"{len(experts)} experts")
        for number, expert in enumerate(experts):
            self.add_module(f"expert_{number}", expert)
        self.own, self.router, self.group = [len(experts)], router, group

    def half(self, tokens, weights, indices):
        (local,) = self.own
        sent = dispatch(tokens, indices, local * dist.get_world_size(self.group), self.group)
        ends = sent.expert_counts.cumsum(0).tolist()
        rows = [
            getattr(self, f"expert_{number}")(sent.tokens[begin:end])
            for number, (begin, end) in enumerate(zip([0, *ends], ends, strict=False))
        ]
        return combine(torch.cat(rows), weights, sent, self.group)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        weights, indices = self.router(tokens)
        cut = len(tokens) // 2
        parts = [
            self.half(tokens[here], weights[here], indices[here])
            for here in (slice(0, cut), slice(cut, None))
        ]
        return torch.cat(parts).reshape(x.shape)
