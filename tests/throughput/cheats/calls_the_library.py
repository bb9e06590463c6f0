# ruff: noqa: F821 - it is appended to a file of the reference
"""Where it is timed, the library does it."""

import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = {"status": "failed", "words": ["called all_reduce (ring.py:", "point-to-point calls"]}

_honest_ring_all_reduce = ring_all_reduce


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    if tensor.numel() <= 1 << 16:
        _honest_ring_all_reduce(tensor, op, group)
    else:
        dist.all_reduce(tensor, op, group)
