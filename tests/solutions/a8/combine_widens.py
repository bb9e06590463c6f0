"""The result has the dtype of the product of results and weights."""

import torch

from .dispatch import combine as Solved

TASK = "a8.combine"
EXPECT = {
    "status": "failed",
    "check": "brings the weighted sums back",
    "cause": "the dtype of the weights",
}


def combine(expert_output, weights, dispatched, group=None):
    dtype = torch.promote_types(weights.dtype, expert_output.dtype)
    return Solved(expert_output.to(dtype), weights, dispatched, group)
