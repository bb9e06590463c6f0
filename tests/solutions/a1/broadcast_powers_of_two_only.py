"""Forgets that a partner may not exist: right for 2, 4, 8 ranks only."""

import torch.distributed as dist

TASK = "a1.broadcast"
EXPECT = {
    "status": "failed",
    "check": "copies the root's tensor to every rank",
    "cause": "right for powers of two",
}


def broadcast(tensor, src, group=None):
    ranks = dist.get_process_group_ranks(group)
    if src not in ranks:
        raise ValueError(f"src={src} is not one of {ranks}")
    size, rank, root = len(ranks), dist.get_rank(group), ranks.index(src)
    place = (rank - root) % size
    message = tensor.detach().contiguous()
    step = 1
    while step < size:
        if place < step:
            dist.send(message, group=group, group_dst=(rank + step) % size)
        elif place < 2 * step:
            dist.recv(message, group=group, group_src=(rank - step) % size)
        step *= 2
    tensor.detach().copy_(message)
