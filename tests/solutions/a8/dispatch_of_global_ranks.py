"""Takes the global rank for the rank in the group."""

import torch
import torch.distributed as dist

from .dispatch import _check, _Exchange, _Permute
from .given import Dispatched

TASK = "a8.dispatch"
EXPECT = {
    "status": "failed",
    "check": "works in sub-groups",
    "cause": "found by its global rank",
}


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
    incoming = _Exchange.apply(tokens[going], sent, received, group)
    chosen = _Exchange.apply(indices[going], sent, received, group) - dist.get_rank() * per_rank
    chosen[(chosen < 0) | (chosen >= per_rank)] = -1
    rows, _, counts = _Permute.apply(incoming, chosen.int(), per_rank)
    return Dispatched(rows, counts.long(), None)
