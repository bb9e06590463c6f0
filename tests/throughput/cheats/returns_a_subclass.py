# ruff: noqa: F821 - it is appended to a file of the reference
"""A tensor that will be reduced when somebody looks at it."""

import torch
import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = {"status": "error", "words": ["returned a Lazy", "works in place"]}

_honest_ring_all_reduce = ring_all_reduce


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        with torch._C.DisableTorchFunctionSubclass():
            _honest_ring_all_reduce(arguments[0].as_subclass(torch.Tensor))
            return function(*arguments, **(options or {}))


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    if tensor.numel() <= 1 << 16:
        _honest_ring_all_reduce(tensor, op, group)
        return None
    return tensor.as_subclass(Lazy)
