"""Counts experts over the world."""

import torch
import torch.distributed as dist

from .dispatch import combine, dispatch
from .layer import ExpertParallelMoE as Solved

TASK = "a8.ExpertParallelMoE"
EXPECT = {
    "status": "error",
    "check": "works in sub-groups",
    "cause": "a group rank is not the global rank",
}


class ExpertParallelMoE(Solved):
    def forward(self, x):
        tokens = x.flatten(0, -2)
        weights, indices = self.router(tokens)
        sent = dispatch(tokens, indices, len(self.experts) * dist.get_world_size(), self.group)
        shares = sent.tokens.split(sent.expert_counts.tolist())
        results = torch.cat([f(rows) for f, rows in zip(self.experts, shares, strict=True)])
        return combine(results, weights, sent, self.group).view_as(x)
