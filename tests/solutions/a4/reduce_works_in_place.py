"""All-reduces the caller's tensor."""

import torch.distributed as dist

TASK = "a4.reduce_from_tensor_parallel"
EXPECT = {
    "status": "failed",
    "check": "changes neither its argument nor a gradient",
    "cause": "a collective works in place on the caller's tensor",
}


def reduce_from_tensor_parallel(tensor, group=None):
    own = tensor.detach()
    total = own if own.is_contiguous() else own.contiguous()
    dist.all_reduce(total, group=group)
    return total + (tensor - tensor.detach())
