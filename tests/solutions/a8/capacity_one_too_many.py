"""int(x) + 1 for ⌈x⌉: one place too many where x is whole."""

from .router import apply_capacity as _solved

TASK = "a8.apply_capacity"
EXPECT = {"status": "failed", "check": "rounded up", "cause": "one too large"}


def apply_capacity(indices, weights, num_experts, capacity_factor):
    exact = indices.numel() / num_experts * capacity_factor
    more = (int(exact) + 1) * num_experts / max(indices.numel(), 1)
    return _solved(indices, weights, num_experts, more if indices.numel() else capacity_factor)
