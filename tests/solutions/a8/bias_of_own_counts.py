"""Looks at this rank's counts only."""

from .router import BiasBalancedRouter as Solved

TASK = "a8.BiasBalancedRouter"
EXPECT = {
    "status": "failed",
    "check": "sums the counts over the group",
    "cause": "this rank's counts only",
}


class BiasBalancedRouter(Solved):
    def update(self, expert_counts, group=None):
        mean = expert_counts.double().mean()
        self.bias += self.gamma * (mean - expert_counts).sign()
