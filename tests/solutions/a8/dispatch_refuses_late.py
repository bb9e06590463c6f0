"""Looks at indices after counts were exchanged."""

import torch.distributed as dist

from .dispatch import dispatch as Solved

TASK = "a8.dispatch"
EXPECT = {
    "status": "failed",
    "check": "refuses what does not fit",
    "cause": "only after communication has begun",
}


def dispatch(tokens, indices, num_experts, group=None):
    if num_experts % dist.get_world_size(group) == 0 and len(tokens) == len(indices):
        dist.barrier(group=group)
    return Solved(tokens, indices, num_experts, group)
