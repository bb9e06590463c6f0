"""Calls dist.broadcast."""

import torch.distributed as dist

TASK = "a1.broadcast"
EXPECT = {
    "status": "failed",
    "check": "copies the root's tensor to every rank",
    "cause": "built from point-to-point calls",
}


def broadcast(tensor, src, group=None):
    dist.broadcast(tensor, src, group=group)
