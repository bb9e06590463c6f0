"""The weights are detached before they weigh anything."""

import torch
import torch.distributed as dist

from .dispatch import combine, dispatch
from .layer import ExpertParallelMoE as Solved

TASK = "a8.ExpertParallelMoE"
EXPECT = {
    "status": "failed",
    "check": "gives router and input",
    "cause": "they are detached in the layer",
}


class ExpertParallelMoE(Solved):
    def forward(self, x):
        tokens = x.flatten(0, -2)
        weights, indices = self.router(tokens)
        experts = len(self.experts) * dist.get_world_size(self.group)
        sent = dispatch(tokens, indices, experts, self.group)
        shares = sent.tokens.split(sent.expert_counts.tolist())
        results = torch.cat([f(rows) for f, rows in zip(self.experts, shares, strict=True)])
        return combine(results, weights.detach(), sent, self.group).view_as(x)
