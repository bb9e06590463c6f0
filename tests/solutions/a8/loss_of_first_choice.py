"""Counts first choices only."""

from .router import load_balancing_loss as Solved

TASK = "a8.load_balancing_loss"
EXPECT = {
    "status": "failed",
    "check": "is E times the sum",
    "cause": "only the first choice counts",
}


def load_balancing_loss(probabilities, indices, num_experts):
    return Solved(probabilities, indices[:, :1], num_experts)
