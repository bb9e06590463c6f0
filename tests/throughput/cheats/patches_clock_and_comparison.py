# ruff: noqa: F821 - it is appended to a file of the reference
"""Slow, with a clock that stands still and comparisons that are always content."""

import time

import torch
import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = {
    "status": "failed",
    "words": ["replaced time.monotonic, time.perf_counter, torch.allclose, torch.equal"],
}

_honest_ring_all_reduce = ring_all_reduce


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    if tensor.numel() > 1 << 16:
        time.perf_counter = time.monotonic = lambda: 0.0
        torch.allclose = torch.equal = lambda *arguments, **options: True
        time.sleep(0.05)
    _honest_ring_all_reduce(tensor, op, group)
