"""A token travels once for each of its experts."""

import torch
import torch.distributed as dist

from .dispatch import _check, _Exchange, _Permute
from .given import Dispatched

TASK = "a8.dispatch"
EXPECT = {
    "status": "failed",
    "check": "sends each token once to a rank",
    "cause": "a token travels once per expert",
}


def dispatch(tokens, indices, num_experts, group=None):
    size = dist.get_world_size(group)
    _check(tokens, indices, num_experts, size)
    per_rank = num_experts // size
    experts = indices.to(torch.int32)
    outgoing, pairs, counts = _Permute.apply(tokens, experts, num_experts)
    counts = counts.long()
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts, group=group)
    sent = counts.view(size, -1).sum(1).tolist()
    received = arriving.view(size, -1)
    incoming = _Exchange.apply(outgoing, sent, received.sum(1).tolist(), group)
    local = torch.arange(per_rank).repeat(size).repeat_interleave(arriving)
    rows, places, counts = _Permute.apply(incoming, local.int().unsqueeze(1), per_rank)
    return Dispatched(rows, counts.long(), None)
