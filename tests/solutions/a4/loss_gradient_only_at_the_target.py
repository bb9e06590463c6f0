"""Shards without the target get no gradient."""

import torch
import torch.distributed as dist

from .cross_entropy import vocab_parallel_cross_entropy as solved

TASK = "a4.vocab_parallel_cross_entropy"
EXPECT = {
    "status": "failed",
    "check": "gives each rank the gradient",
    "cause": "the gradient is lost on shards that do not hold the target",
}


def vocab_parallel_cross_entropy(
    logits, target, group=None, ignore_index=-100, label_smoothing=0.0
):
    share = logits.shape[-1]
    first = dist.get_rank(group) * share
    here = ((target >= first) & (target < first + share)).unsqueeze(-1)
    kept = torch.where(here, logits, logits.detach())
    return solved(kept, target, group, ignore_index, label_smoothing)
