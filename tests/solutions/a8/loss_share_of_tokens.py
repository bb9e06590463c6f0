"""f is the share of tokens, which sums to k."""

from .router import load_balancing_loss as Solved

TASK = "a8.load_balancing_loss"
EXPECT = {
    "status": "failed",
    "check": "is 1 when the load is even",
    "cause": "sums to k",
}


def load_balancing_loss(probabilities, indices, num_experts):
    return Solved(probabilities, indices, num_experts) * indices.shape[1]
