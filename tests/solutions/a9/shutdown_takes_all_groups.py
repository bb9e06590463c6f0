"""Destroys a group that somebody else made."""

import torch.distributed as dist

from .harness import shutdown as right

TASK = "a9.shutdown"
EXPECT = {
    "status": "failed",
    "check": "leaves a group that was there before",
    "cause": "destroys a group that initialize() has not made",
}


def shutdown(error=None):
    right(error)
    if dist.is_initialized():
        dist.destroy_process_group()
