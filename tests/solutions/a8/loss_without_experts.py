"""The factor E is forgotten."""

from .router import load_balancing_loss as Solved

TASK = "a8.load_balancing_loss"
EXPECT = {
    "status": "failed",
    "check": "is E times the sum",
    "cause": "the factor E is missing",
}


def load_balancing_loss(probabilities, indices, num_experts):
    return Solved(probabilities, indices, num_experts) / num_experts
