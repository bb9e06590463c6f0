# ruff: noqa: F821 - it is appended to a file of the reference
"""Returns at once; a thread does the work when the clock has been read."""

import threading
import time

import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = {"status": "failed", "words": ["timed call 1: rank 0", "nothing was done in this call"]}

_honest_ring_all_reduce = ring_all_reduce


def _late(tensor, op, group):
    time.sleep(0.2)
    _honest_ring_all_reduce(tensor, op, group)


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    if tensor.numel() <= 1 << 16:
        _honest_ring_all_reduce(tensor, op, group)
    else:
        threading.Thread(target=_late, args=(tensor, op, group), daemon=True).start()
