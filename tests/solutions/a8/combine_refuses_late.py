"""Sends the weights before it looks at the results."""

import torch
import torch.distributed as dist

from .dispatch import combine as Solved

TASK = "a8.combine"
EXPECT = {
    "status": "failed",
    "check": "refuses what does not fit",
    "cause": "only after communication has begun",
}


def combine(expert_output, weights, dispatched, group=None):
    dist.all_reduce(torch.zeros(1), group=group)
    return Solved(expert_output, weights, dispatched, group)
