"""Right: refuses a tensor that is not contiguous, as NCCL itself would."""

import torch.distributed as dist

TASK = "a1.broadcast"
EXPECT = "passed"


def broadcast(tensor, src, group=None):
    ranks = dist.get_process_group_ranks(group)
    if src not in ranks:
        raise ValueError(f"src={src} is not one of {ranks}")
    if not tensor.is_contiguous():
        raise ValueError(f"tensor must be contiguous, got strides {tensor.stride()}")
    size, rank, root = len(ranks), dist.get_rank(group), ranks.index(src)
    place = (rank - root) % size
    message = tensor.detach()
    step = 1
    while step < size:
        if place < step:
            if place + step < size:
                dist.send(message, group=group, group_dst=(rank + step) % size)
        elif place < 2 * step:
            dist.recv(message, group=group, group_src=(rank - step) % size)
        step *= 2
