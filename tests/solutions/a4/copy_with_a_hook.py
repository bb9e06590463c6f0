"""No autograd.Function: a hook on the copy sums its gradient."""

import torch
import torch.distributed as dist

TASK = "a4.copy_to_tensor_parallel"
EXPECT = "passed"


def copy_to_tensor_parallel(tensor, group=None):
    copy = tensor.clone()

    def total(gradient):
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(gradient, group=group)
        return gradient

    if copy.requires_grad and dist.get_world_size(group) > 1:
        copy.register_hook(total)
    return copy
