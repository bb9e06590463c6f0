# ruff: noqa: F821 - it is appended to a file of the reference
"""The result of the first call, handed out in every later one."""

import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = {"status": "failed", "words": ["timed call 1: rank 0", "the result of an earlier call"]}

_honest_ring_all_reduce = ring_all_reduce
_kept = {}


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    key = (tensor.shape, tensor.dtype, op)
    if tensor.numel() > 1 << 16 and key in _kept:
        tensor.copy_(_kept[key])
        return
    _honest_ring_all_reduce(tensor, op, group)
    _kept[key] = tensor.clone()
