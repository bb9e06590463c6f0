"""Expects from every rank as many tokens as it sends there."""

import torch
import torch.distributed as dist

from .dispatch import _check, _Exchange, _Permute
from .given import Dispatched

TASK = "a8.dispatch"
EXPECT = {
    "status": "failed",
    "check": "brings every token to its experts",
    "cause": "how much arrives is guessed",
}


def dispatch(tokens, indices, num_experts, group=None):
    size = dist.get_world_size(group)
    _check(tokens, indices, num_experts, size)
    per_rank = num_experts // size
    lists = [((indices // per_rank) == r).any(1).nonzero().squeeze(1) for r in range(size)]
    going = torch.cat(lists)
    sent = [len(each) for each in lists]
    incoming = _Exchange.apply(tokens[going], sent, sent, group)
    chosen = _Exchange.apply(indices[going], sent, sent, group) - dist.get_rank(group) * per_rank
    chosen[(chosen < 0) | (chosen >= per_rank)] = -1
    rows, _, counts = _Permute.apply(incoming, chosen.int(), per_rank)
    return Dispatched(rows, counts.long(), None)
