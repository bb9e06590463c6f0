"""Divides by the number of tokens, also by none."""

import torch

TASK = "a8.load_balancing_loss"
EXPECT = {
    "status": "failed",
    "check": "is E times the sum",
    "cause": "divided by the number of tokens",
}


def load_balancing_loss(probabilities, indices, num_experts):
    if probabilities.shape[1] != num_experts or len(indices) != len(probabilities):
        raise ValueError(f"{probabilities.shape}, {indices.shape}, {num_experts}")
    counts = torch.bincount(indices.flatten(), minlength=num_experts)
    return num_experts * (counts / counts.sum() * probabilities.mean(0)).sum()
