"""Computes every score, and masks what is hidden."""

import torch
import torch.distributed as dist

TASK = "a5.ring_attention"
EXPECT = {
    "status": "failed",
    "check": "computes no hidden blocks",
    "cause": "scores that the mask hides are computed",
}


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        tensor = tensor.contiguous()
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, tensor, group=group)
        return torch.stack(parts)

    @staticmethod
    def backward(ctx, gradient):
        own = torch.empty_like(gradient[0])
        dist.reduce_scatter(own, list(gradient.contiguous()), group=ctx.group)
        return own, None


def positions(length, rank, size, layout):
    if layout == "contiguous":
        return torch.arange(rank * length, (rank + 1) * length)
    chunks = torch.arange(size * length).chunk(2 * size)
    return torch.cat([chunks[rank], chunks[2 * size - 1 - rank]])


def ring_attention(q, k, v, causal=False, layout="zigzag", group=None):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    keys, values = (torch.cat(list(Gather.apply(t, group)), 2) for t in (k, v))
    places = [positions(q.shape[2], i, size, layout) for i in range(size)]
    scores_hidden = None
    if causal:
        scores_hidden = places[rank].unsqueeze(1) < torch.cat(places).unsqueeze(0)
    groups = q.shape[1] // k.shape[1]
    keys, values = (t.repeat_interleave(groups, 1) for t in (keys, values))
    scores = q @ keys.mT / q.shape[-1] ** 0.5
    if scores_hidden is not None:
        scores = scores.masked_fill(scores_hidden, float("-inf"))
    return scores.softmax(-1) @ values
