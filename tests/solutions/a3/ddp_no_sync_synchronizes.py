"""Every micro-batch is averaged: right in value, and twice the traffic."""

from contextlib import contextmanager

from .ddp import DistributedDataParallel

TASK = "a3.DistributedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "no_sync",
    "cause": "does not keep backward from sending",
}


class DistributedDataParallel(DistributedDataParallel):
    @contextmanager
    def no_sync(self):
        yield
        self.finish_gradient_synchronization()
