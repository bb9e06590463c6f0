"""Right: tensors are handed on from neighbour to neighbour; empty ones travel in no message."""

import torch
import torch.distributed as dist

TASK = "a1.all_gather"
EXPECT = "passed"


def all_gather(outputs, tensor, group=None):
    rank, size = place(group)  # noqa: F821  of the module that this is appended to
    check_list("outputs", outputs, "tensor", tensor, rank, size)  # noqa: F821
    rooms = [torch.empty_like(each, memory_format=torch.contiguous_format) for each in outputs]
    rooms[rank].copy_(tensor)
    for step in range(size - 1):
        leaving, arriving = rooms[(rank - step) % size], rooms[(rank - step - 1) % size]
        batch = []
        if leaving.numel():
            peer = (rank + 1) % size
            batch.append(dist.P2POp(dist.isend, leaving, group=group, group_peer=peer))
        if arriving.numel():
            peer = (rank - 1) % size
            batch.append(dist.P2POp(dist.irecv, arriving, group=group, group_peer=peer))
        for work in dist.batch_isend_irecv(batch) if batch else ():
            work.wait()
    for output, room in zip(outputs, rooms, strict=True):
        output.copy_(room)
