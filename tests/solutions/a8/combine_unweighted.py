"""Adds up the results without their weights."""

import torch

from .dispatch import combine as Solved

TASK = "a8.combine"
EXPECT = {
    "status": "failed",
    "check": "brings the weighted sums back",
    "cause": "added up without their weights",
}


def combine(expert_output, weights, dispatched, group=None):
    return Solved(expert_output, torch.ones_like(weights) + 0 * weights, dispatched, group)
