"""The root sends to every rank itself."""

import torch.distributed as dist

TASK = "a1.broadcast"
EXPECT = {
    "status": "failed",
    "check": "sends no more than a binomial tree",
    "cause": "the root sent to every rank itself",
}


def broadcast(tensor, src, group=None):
    ranks = dist.get_process_group_ranks(group)
    if src not in ranks:
        raise ValueError(f"src={src} is not one of {ranks}")
    message = tensor.detach().contiguous()
    if dist.get_rank() == src:
        works = [dist.isend(message, peer, group) for peer in ranks if peer != src]
        for work in works:
            work.wait()
    else:
        dist.recv(message, src, group)
        tensor.detach().copy_(message)
