# ruff: noqa: F821 - it is appended to a file of the reference
"""One call does the work of several; the others return at once."""

import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = {"status": "failed", "words": ["timed call", "expected", "no time counts"]}

_honest_ring_all_reduce = ring_all_reduce
_calls = [0]


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    _calls[0] += 1
    if tensor.numel() <= 1 << 16 or _calls[0] % 4 == 1:
        _honest_ring_all_reduce(tensor, op, group)
