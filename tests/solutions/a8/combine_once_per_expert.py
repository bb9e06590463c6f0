"""Every row travels back, and is weighted at home."""

import torch

from .dispatch import _Exchange, _exchanged
from .dispatch import combine as Solved

TASK = "a8.combine"
EXPECT = {
    "status": "failed",
    "check": "returns each token once from a rank",
    "cause": "every expert's result travels back by itself",
}


def combine(expert_output, weights, dispatched, group=None):
    route = dispatched.state
    if weights.shape != route.bins.shape or len(expert_output) != len(dispatched.tokens):
        return Solved(expert_output, weights, dispatched, group)
    here = route.rows >= 0
    back = expert_output[route.rows[here].long()]
    per_pair = here.sum(1)
    going = [int(each.sum()) for each in per_pair.split(route.received)]
    counts = _exchanged(per_pair.unsqueeze(1), route.received, route.sent, group).squeeze(1)
    arriving = [int(each.sum()) for each in counts.split(route.sent)]
    token, _ = (route.pairs >= 0).nonzero(as_tuple=True)
    returned = _Exchange.apply(back, going, arriving, group)
    flags = _exchanged(here.to(torch.uint8), route.received, route.sent, group).bool()
    origin = torch.empty(len(flags), dtype=torch.int64)
    origin[route.pairs[route.pairs >= 0].long()] = token
    pair, choice = flags.nonzero(as_tuple=True)
    weighted = returned * weights[origin[pair], choice].unsqueeze(1)
    out = returned.new_zeros(len(weights), returned.shape[1])
    return out.index_add(0, origin[pair], weighted.to(out.dtype))
