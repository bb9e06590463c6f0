"""Moves in proportion to the load."""

import torch.distributed as dist

from .router import BiasBalancedRouter as Solved

TASK = "a8.BiasBalancedRouter"
EXPECT = {
    "status": "failed",
    "check": "moves every bias",
    "cause": "moves in proportion",
}


class BiasBalancedRouter(Solved):
    def update(self, expert_counts, group=None):
        counts = expert_counts.double()
        dist.all_reduce(counts, group=group)
        share = counts / counts.sum().clamp(min=1)
        self.bias += self.gamma * (
            counts.sum() / counts.sum().clamp(min=1) - share * self.num_experts
        )
