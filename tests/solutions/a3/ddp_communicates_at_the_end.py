"""Backward runs to its end before the first bucket is sent."""

from .ddp import DistributedDataParallel

TASK = "a3.DistributedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "begins half of its traffic",
    "cause": "communication begins only at the end",
}


class DistributedDataParallel(DistributedDataParallel):
    def _on_gradient(self, parameter):
        pass
