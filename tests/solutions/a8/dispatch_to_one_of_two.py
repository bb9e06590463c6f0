"""Of two experts on one rank only the first gets the token."""

import torch.distributed as dist

from .dispatch import dispatch as Solved

TASK = "a8.dispatch"
EXPECT = {
    "status": "failed",
    "check": "copes with ranks without tokens",
    "cause": "given to one of them only",
}


def dispatch(tokens, indices, num_experts, group=None):
    size = dist.get_world_size(group)
    if num_experts % size or len(tokens) != len(indices):
        return Solved(tokens, indices, num_experts, group)
    owner = indices // (num_experts // size)
    again = (owner.unsqueeze(2) == owner.unsqueeze(1)).tril(-1).any(2)
    return Solved(tokens, indices.masked_fill(again, -1), num_experts, group)
