"""A sum over tokens, pair by pair, of one-hot choices and probabilities."""

import torch
from torch.nn import functional as F

TASK = "a8.load_balancing_loss"
EXPECT = "passed"


def load_balancing_loss(probabilities, indices, num_experts):
    tokens, experts = probabilities.shape
    if experts != num_experts or len(indices) != tokens:
        raise ValueError(f"{tuple(probabilities.shape)}, {tuple(indices.shape)}, {num_experts}")
    if tokens == 0:
        return probabilities.sum()
    chosen = F.one_hot(indices, num_experts).to(probabilities.dtype).mean((0, 1))
    return torch.einsum("e,te->", chosen, probabilities) * (num_experts / tokens)
