"""Counts predecessors by a running sum over one-hot rows."""

import math

from torch.nn import functional as F

TASK = "a8.apply_capacity"
EXPECT = "passed"


def apply_capacity(indices, weights, num_experts, capacity_factor):
    if indices.shape != weights.shape:
        raise ValueError(f"{tuple(indices.shape)} and {tuple(weights.shape)}")
    if capacity_factor <= 0:
        raise ValueError(f"capacity_factor {capacity_factor}")
    capacity = math.ceil(indices.numel() / num_experts * capacity_factor)
    hot = F.one_hot(indices.t().flatten() + 1, num_experts + 1)[:, 1:]
    before = (hot.cumsum(0) - hot)[hot.bool()]
    kept = hot.any(1)
    kept[kept.clone()] = before < capacity
    return kept.view(indices.t().shape).t()
