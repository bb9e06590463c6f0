"""What is not contiguous is reduced as a copy; that one may not be written back goes unseen."""

import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = {
    "status": "failed",
    "cause": "not checked",
    "check": "refuses wrong arguments",
}

_of_a_copy = ring_all_reduce  # noqa: F821


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    whole = tensor.contiguous()
    _of_a_copy(whole, op, group)
    if whole is not tensor:
        tensor.copy_(whole)
