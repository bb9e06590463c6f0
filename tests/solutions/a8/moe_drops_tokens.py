"""Experts have a capacity, and what is more is dropped, though nobody asked for that."""

from .dispatch import dispatch as _dispatch
from .router import apply_capacity

TASK = "a8.ExpertParallelMoE"
EXPECT = {
    "status": "failed",
    "check": "equals the layer on one device",
    "cause": "tokens are dropped",
}


def dispatch(tokens, indices, num_experts, group=None):
    kept = apply_capacity(indices, indices, num_experts, 1.25)
    return _dispatch(tokens, indices.masked_fill(~kept, -1), num_experts, group)
