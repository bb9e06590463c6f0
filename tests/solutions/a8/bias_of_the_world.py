"""Sums over the default group."""

from .router import BiasBalancedRouter as Solved

TASK = "a8.BiasBalancedRouter"
EXPECT = {
    "status": "failed",
    "check": "sums the counts over the group",
    "cause": "it runs in the default group",
}


class BiasBalancedRouter(Solved):
    def update(self, expert_counts, group=None):
        super().update(expert_counts)
