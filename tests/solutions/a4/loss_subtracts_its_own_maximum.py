"""Each rank subtracts its own largest logit, and then adds up what is not comparable."""

import torch
import torch.distributed as dist

from .mappings import reduce_from_tensor_parallel

TASK = "a4.vocab_parallel_cross_entropy"
EXPECT = {
    "status": "failed",
    "check": "is the loss of the gathered logits",
    "cause": "each rank subtracts its own largest logit",
}


def vocab_parallel_cross_entropy(
    logits, target, group=None, ignore_index=-100, label_smoothing=0.0
):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    share = logits.shape[-1]
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    most = wide.detach().amax(-1)
    shifted = wide - most.unsqueeze(-1)
    local = target - rank * share
    here = (local >= 0) & (local < share)
    at = shifted.gather(-1, local.masked_fill(~here, 0).unsqueeze(-1)).squeeze(-1) * here
    sums = torch.stack([shifted.exp().sum(-1), at, shifted.sum(-1)])
    total, at, everything = reduce_from_tensor_parallel(sums, group)
    loss = total.log() - (1 - label_smoothing) * at - label_smoothing * everything / (share * size)
    return loss.masked_fill(target == ignore_index, 0.0).to(logits.dtype)
