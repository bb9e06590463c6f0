"""Calls dist.broadcast."""

import torch.distributed as dist

TASK = "a1.broadcast"
EXPECT = {
    "status": "failed",
    "check": "copies the root's tensor to every rank",
    "cause": "point-to-point calls only",
}


def broadcast(tensor, src, group=None):
    dist.broadcast(tensor, src, group=group)
