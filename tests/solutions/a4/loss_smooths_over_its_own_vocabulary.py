"""Spreads the smoothing over the columns of one rank."""

import torch
import torch.distributed as dist

from .mappings import reduce_from_tensor_parallel

TASK = "a4.vocab_parallel_cross_entropy"
EXPECT = {
    "status": "failed",
    "check": "smooths over the whole vocabulary",
    "cause": "smoothing over this rank's vocabulary",
}


def vocab_parallel_cross_entropy(
    logits, target, group=None, ignore_index=-100, label_smoothing=0.0
):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    share = logits.shape[-1]
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    most = wide.detach().amax(-1)
    dist.all_reduce(most, dist.ReduceOp.MAX, group=group)
    shifted = wide - most.unsqueeze(-1)
    local = target - rank * share
    here = (local >= 0) & (local < share)
    at = shifted.gather(-1, local.masked_fill(~here, 0).unsqueeze(-1)).squeeze(-1) * here
    mean = shifted.sum(-1) / share
    total, at = reduce_from_tensor_parallel(torch.stack([shifted.exp().sum(-1), at]), group)
    lse = total.log()
    loss = (1 - label_smoothing) * (lse - at) + label_smoothing * (lse - mean)
    return loss.masked_fill(target == ignore_index, 0.0).to(logits.dtype)
