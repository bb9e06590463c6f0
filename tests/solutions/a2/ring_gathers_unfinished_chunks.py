"""The all-gather half begins with the chunk before the one that this rank has finished."""

import torch
import torch.distributed as dist

from .ring import fold, post_exchange, wait_all

TASK = "a2.ring_all_reduce"
EXPECT = {
    "status": "failed",
    "cause": "not the chunk that was finished",
    "check": "reduces on every rank",
}


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    whole = tensor.contiguous().view(-1)
    chunks = whole.tensor_split(size)
    for step in range(2 * size - 2):
        if step < size - 1:
            send, own = chunks[(rank - 1 - step) % size], chunks[(rank - 2 - step) % size]
            received = torch.empty_like(own)
            wait_all(post_exchange(send, received, group))
            fold(own, received, op)
        else:
            send, own = chunks[(rank - 2 - step) % size], chunks[(rank - 3 - step) % size]
            wait_all(post_exchange(send, own, group))
    if op == dist.ReduceOp.AVG:
        whole /= size
    tensor.copy_(whole.view_as(tensor))
