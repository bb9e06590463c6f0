"""Calls `batch_isend_irecv` with an empty list where a rank is alone."""

import torch
import torch.distributed as dist

TASK = "a1.all_gather"
EXPECT = {
    "status": "error",
    "check": "sub-groups and alone",
    "cause": "an empty list raises IndexError",
}


def all_gather(outputs, tensor, group=None):
    rank, size = place(group)  # noqa: F821  of the module that this is appended to
    check_list("outputs", outputs, "tensor", tensor, rank, size)  # noqa: F821
    outputs[rank].copy_(tensor)
    rooms = [torch.empty_like(each, memory_format=torch.contiguous_format) for each in outputs]
    own, batch = tensor.contiguous(), []
    for peer in range(size):
        if peer != rank:
            batch.append(dist.P2POp(dist.isend, own, group=group, group_peer=peer))
            batch.append(dist.P2POp(dist.irecv, rooms[peer], group=group, group_peer=peer))
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    for peer in range(size):
        if peer != rank:
            outputs[peer].copy_(rooms[peer])
