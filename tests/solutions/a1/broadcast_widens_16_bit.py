"""Sends 16-bit values as 32-bit ones."""

import torch
import torch.distributed as dist

TASK = "a1.broadcast"
EXPECT = {
    "status": "failed",
    "check": "sends no more than a binomial tree",
    "cause": "16-bit values travel as 32-bit",
}


def broadcast(tensor, src, group=None):
    ranks = dist.get_process_group_ranks(group)
    if src not in ranks:
        raise ValueError(f"src={src} is not one of {ranks}")
    size, rank, root = len(ranks), dist.get_rank(group), ranks.index(src)
    place = (rank - root) % size
    narrow = tensor.dtype in (torch.float16, torch.bfloat16)
    message = tensor.detach().to(torch.float32 if narrow else tensor.dtype).contiguous()
    step = 1
    while step < size:
        if place < step:
            if place + step < size:
                dist.send(message, group=group, group_dst=(rank + step) % size)
        elif place < 2 * step:
            dist.recv(message, group=group, group_src=(rank - step) % size)
        step *= 2
    tensor.detach().copy_(message)
