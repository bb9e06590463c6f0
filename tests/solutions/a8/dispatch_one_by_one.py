"""Serves its partners one after the other."""

import torch
import torch.distributed as dist

from .dispatch import _check, _Permute
from .given import Dispatched

TASK = "a8.dispatch"
EXPECT = {
    "status": "failed",
    "check": "exchanges with all ranks at once",
    "cause": "one after the other",
}


def exchanged(tensor, sent, received, group):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    going = tensor.contiguous().split(sent)
    arrived = [tensor.new_empty((count, *tensor.shape[1:])) for count in received]
    arrived[rank].copy_(going[rank])
    for step in range(1, size):
        to, source = (rank + step) % size, (rank - step) % size
        works = []
        if sent[to]:
            works.append(dist.isend(going[to], group_dst=to, group=group))
        if received[source]:
            dist.recv(arrived[source], group_src=source, group=group)
        for work in works:
            work.wait()
    return torch.cat(arrived)


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, sent, received, group):
        ctx.route = received, sent, group
        return exchanged(tensor, sent, received, group)

    @staticmethod
    def backward(ctx, gradient):
        return exchanged(gradient, *ctx.route), None, None, None


def dispatch(tokens, indices, num_experts, group=None):
    size = dist.get_world_size(group)
    _check(tokens, indices, num_experts, size)
    per_rank = num_experts // size
    lists = [((indices // per_rank) == r).any(1).nonzero().squeeze(1) for r in range(size)]
    going = torch.cat(lists)
    counts = torch.tensor([len(each) for each in lists])
    arriving = counts.clone()
    if size > 1:
        dist.all_to_all_single(arriving, counts, group=group)
    sent, received = counts.tolist(), arriving.tolist()
    chosen = exchanged(indices[going], sent, received, group) - dist.get_rank(group) * per_rank
    chosen[(chosen < 0) | (chosen >= per_rank)] = -1
    incoming = Exchange.apply(tokens[going], sent, received, group)
    rows, _, counts = _Permute.apply(incoming, chosen.int(), per_rank)
    return Dispatched(rows, counts.long(), None)
