"""Every rank passes the tensor on to the next: p - 1 rounds."""

import torch.distributed as dist

TASK = "a1.broadcast"
EXPECT = {
    "status": "failed",
    "check": "needs no more rounds than a binomial tree",
    "cause": "one rank after the other",
}


def broadcast(tensor, src, group=None):
    ranks = dist.get_process_group_ranks(group)
    if src not in ranks:
        raise ValueError(f"src={src} is not one of {ranks}")
    size, rank, root = len(ranks), dist.get_rank(group), ranks.index(src)
    place = (rank - root) % size
    message = tensor.detach().contiguous()
    if place > 0:
        dist.recv(message, group=group, group_src=(rank - 1) % size)
    if place < size - 1:
        dist.send(message, group=group, group_dst=(rank + 1) % size)
    tensor.detach().copy_(message)
