# ruff: noqa: F821 - it is appended to a file of the reference
"""Makes the library's all-reduce slow, for the sake of comparison."""

import time

import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = {"status": "failed", "words": ["replaced torch.distributed.all_reduce"]}

_honest_ring_all_reduce = ring_all_reduce


def _slow(*arguments, **options):
    time.sleep(1.0)


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    if tensor.numel() > 1 << 16:
        dist.all_reduce = _slow
    _honest_ring_all_reduce(tensor, op, group)
