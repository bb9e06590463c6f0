"""Takes src, a global rank, for a group rank."""

import torch.distributed as dist

TASK = "a1.broadcast"
EXPECT = {
    "status": "failed",
    "check": "works in sub-groups",
    "cause": "group rank",
}


def broadcast(tensor, src, group=None):
    ranks = dist.get_process_group_ranks(group)
    if src not in ranks:
        raise ValueError(f"src={src} is not one of {ranks}")
    size, rank = len(ranks), dist.get_rank(group)
    place = (rank - src) % size
    message = tensor.detach().contiguous()
    step = 1
    while step < size:
        if place < step:
            if place + step < size:
                dist.send(message, group=group, group_dst=(rank + step) % size)
        elif place < 2 * step:
            dist.recv(message, group=group, group_src=(rank - step) % size)
        step *= 2
    tensor.detach().copy_(message)
