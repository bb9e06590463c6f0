"""Puts new tensors into the list; those that the caller still holds stay as they were."""

import torch
import torch.distributed as dist

TASK = "a1.gather"
EXPECT = {
    "status": "failed",
    "check": "collects every rank's tensor",
    "cause": "new tensors were put into the list",
}


def gather(tensor, outputs, dst, group=None):
    ranks = dist.get_process_group_ranks(group)
    if dst not in ranks:
        raise ValueError(f"dst={dst} is not one of {ranks}")
    if dist.get_rank() != dst:
        dist.send(tensor.contiguous(), dst, group)
        return
    if outputs is None or len(outputs) != len(ranks):
        raise ValueError(f"outputs={outputs}: expected {len(ranks)} tensors")
    for index, peer in enumerate(ranks):
        room = torch.empty_like(outputs[index], memory_format=torch.contiguous_format)
        if peer == dst:
            room.copy_(tensor)
        else:
            dist.recv(room, peer, group)
        outputs[index] = room
