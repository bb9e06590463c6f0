"""Refuses a list of the wrong length, but neither dtype nor shape."""

import torch
import torch.distributed as dist

TASK = "a1.all_gather"
EXPECT = {
    "status": "failed",
    "check": "refuses lists",
    "cause": "the argument is not checked",
}


def all_gather(outputs, tensor, group=None):
    rank, size = place(group)  # noqa: F821  of the module that this is appended to
    if len(outputs) != size:
        raise ValueError(f"outputs has {len(outputs)} tensors: expected {size}")
    outputs[rank].copy_(tensor)
    for peer in range(size):
        for turn in (0, 1):
            if peer != rank and turn == (rank < peer):
                dist.send(tensor.contiguous(), group=group, group_dst=peer)
            elif peer != rank:
                room = torch.empty_like(outputs[peer], memory_format=torch.contiguous_format)
                dist.recv(room, group=group, group_src=peer)
                outputs[peer].copy_(room)
