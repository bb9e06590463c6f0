"""Calls no expert that has no rows."""

import torch
import torch.distributed as dist

from .dispatch import combine, dispatch
from .layer import ExpertParallelMoE as Solved

TASK = "a8.ExpertParallelMoE"
EXPECT = {
    "status": "failed",
    "check": "copes with ranks without tokens",
    "cause": "an expert that got no tokens was not called",
}


class ExpertParallelMoE(Solved):
    def forward(self, x):
        tokens = x.flatten(0, -2)
        weights, indices = self.router(tokens)
        experts = len(self.experts) * dist.get_world_size(self.group)
        sent = dispatch(tokens, indices, experts, self.group)
        shares = sent.tokens.split(sent.expert_counts.tolist())
        results = [
            f(rows) if len(rows) else rows for f, rows in zip(self.experts, shares, strict=True)
        ]
        return combine(torch.cat(results), weights, sent, self.group).view_as(x)
