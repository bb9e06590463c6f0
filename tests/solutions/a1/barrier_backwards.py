"""Right: signals in the other direction, farthest first, with a longer token."""

import torch
import torch.distributed as dist

TASK = "a1.barrier"
EXPECT = "passed"


def barrier(group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    for k in reversed(range((size - 1).bit_length())):
        distance = 1 << k
        token, heard = torch.tensor(rank), torch.tensor(-1)
        batch = [
            dist.P2POp(dist.irecv, heard, group=group, group_peer=(rank + distance) % size),
            dist.P2POp(dist.isend, token, group=group, group_peer=(rank - distance) % size),
        ]
        for work in reversed(dist.batch_isend_irecv(batch)):
            work.wait()
