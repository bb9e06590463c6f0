"""No autograd.Function: an all-reduce in place on a clone, whose backward is the identity."""

import torch
import torch.distributed as dist

TASK = "a4.reduce_from_tensor_parallel"
EXPECT = "passed"


def reduce_from_tensor_parallel(tensor, group=None):
    total = tensor.clone(memory_format=torch.contiguous_format)
    with torch.no_grad():
        dist.all_reduce(total.detach(), group=group)
    return total
