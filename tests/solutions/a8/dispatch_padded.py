"""Every rank sends every other as many rows as the fullest needs."""

import torch
import torch.distributed as dist

from .dispatch import _check, _Exchange, _exchanged, _Permute
from .given import Dispatched

TASK = "a8.dispatch"
EXPECT = {
    "status": "failed",
    "check": "sends each token once to a rank",
    "cause": "padded to a fixed size",
}


def dispatch(tokens, indices, num_experts, group=None):
    size = dist.get_world_size(group)
    _check(tokens, indices, num_experts, size)
    per_rank = num_experts // size
    lists = [((indices // per_rank) == r).any(1).nonzero().squeeze(1) for r in range(size)]
    most = torch.tensor(max(len(each) for each in lists))
    dist.all_reduce(most, dist.ReduceOp.MAX, group=group)
    most = int(most)
    slots = torch.full((size, most), -1)
    for r, each in enumerate(lists):
        slots[r, : len(each)] = each
    flat = slots.flatten()
    taken = (
        tokens[flat.clamp(min=0)]
        if len(tokens)
        else tokens.new_zeros(len(flat), tokens.shape[1]) + tokens.sum()
    )
    outgoing = torch.where((flat >= 0).unsqueeze(1), taken, 0.0)
    wanted = torch.full((len(flat), indices.shape[1]), -1)
    wanted[flat >= 0] = indices[flat[flat >= 0]].long()
    wanted = wanted - (torch.arange(size) * per_rank).repeat_interleave(most).unsqueeze(1)
    wanted[flat < 0] = -1
    even = [most] * size
    incoming = _Exchange.apply(outgoing, even, even, group)
    chosen = _exchanged(wanted.int(), even, even, group) if size > 1 else wanted.int()
    chosen[(chosen < 0) | (chosen >= per_rank)] = -1
    rows, _, counts = _Permute.apply(incoming, chosen, per_rank)
    return Dispatched(rows, counts.long(), None)
