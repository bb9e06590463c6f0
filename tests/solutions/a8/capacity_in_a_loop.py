"""One assignment after the other, counted in a dict."""

import math

import torch

TASK = "a8.apply_capacity"
EXPECT = "passed"


def fill(indices, order, capacity):
    taken, kept = {}, torch.zeros(indices.shape, dtype=torch.bool)
    for token, choice in order:
        expert = int(indices[token, choice])
        if expert >= 0 and taken.get(expert, 0) < capacity:
            taken[expert] = taken.get(expert, 0) + 1
            kept[token, choice] = True
    return kept


def apply_capacity(indices, weights, num_experts, capacity_factor):
    if indices.shape != weights.shape:
        raise ValueError(f"{tuple(indices.shape)} and {tuple(weights.shape)}")
    if capacity_factor <= 0:
        raise ValueError(f"capacity_factor {capacity_factor}")
    tokens, k = indices.shape
    capacity = math.ceil(indices.numel() / num_experts * capacity_factor)
    order = [(t, c) for c in range(k) for t in range(tokens)]
    return fill(indices, order, capacity)
