"""Receives from any source and files the tensors in the order in which they come."""

import torch.distributed as dist

TASK = "a1.gather"
EXPECT = {
    "status": "failed",
    "check": "collects every rank's tensor",
    "cause": "a receive from any source",
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
    outputs[ranks.index(dst)].copy_(tensor)
    for index, peer in enumerate(ranks):
        if peer != dst:
            room = outputs[index].contiguous()
            dist.recv(room, group=group)
            outputs[index].copy_(room)
