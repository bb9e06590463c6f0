"""Only the chosen experts' probabilities get a gradient."""

import torch

from .router import load_balancing_loss as Solved

TASK = "a8.load_balancing_loss"
EXPECT = {
    "status": "failed",
    "check": "has the gradient",
    "cause": "only the chosen experts",
}


def load_balancing_loss(probabilities, indices, num_experts):
    chosen = torch.zeros_like(probabilities).scatter(1, indices, 1.0)
    mixed = chosen * probabilities + (1 - chosen) * probabilities.detach()
    return Solved(mixed, indices, num_experts)
