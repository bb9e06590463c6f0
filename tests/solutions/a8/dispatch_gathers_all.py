"""All tokens go to all ranks."""

import torch
import torch.distributed as dist

from .dispatch import _check, _Permute
from .given import Dispatched

TASK = "a8.dispatch"
EXPECT = {
    "status": "failed",
    "check": "sends each token once to a rank",
    "cause": "all tokens go to all ranks",
}


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tokens, counts, group):
        ctx.counts, ctx.group = counts, group
        most = max(counts)
        padded = tokens.new_zeros(most, tokens.shape[1])
        padded[: len(tokens)] = tokens
        found = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(found, padded, group=group)
        return torch.cat([each[:count] for each, count in zip(found, counts, strict=True)])

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient.split(ctx.counts)[dist.get_rank(ctx.group)], None, None


def dispatch(tokens, indices, num_experts, group=None):
    size = dist.get_world_size(group)
    _check(tokens, indices, num_experts, size)
    per_rank = num_experts // size
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(counts, torch.tensor([len(tokens)]), group=group)
    counts = [int(count) for count in counts]
    whole = Gather.apply(tokens, counts, group)
    chosen = Gather.apply(indices.long(), counts, group) - dist.get_rank(group) * per_rank
    chosen[(chosen < 0) | (chosen >= per_rank)] = -1
    rows, _, counts = _Permute.apply(whole, chosen.int(), per_rank)
    return Dispatched(rows, counts.long(), None)
