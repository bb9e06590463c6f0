"""Everything that is not above the mean moves up."""

import torch
import torch.distributed as dist

from .router import BiasBalancedRouter as Solved

TASK = "a8.BiasBalancedRouter"
EXPECT = {
    "status": "failed",
    "check": "moves every bias",
    "cause": "just the mean is moved",
}


class BiasBalancedRouter(Solved):
    def update(self, expert_counts, group=None):
        counts = expert_counts.clone()
        dist.all_reduce(counts, group=group)
        above = counts > counts.double().mean()
        self.bias += torch.where(above, -self.gamma, self.gamma)
