"""A bucket with a parameter that backward never reaches is never sent."""

from .ddp import DistributedDataParallel

TASK = "a3.DistributedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "unused, shared and frozen",
    "cause": "its bucket is never sent",
}


class DistributedDataParallel(DistributedDataParallel):
    def finish_gradient_synchronization(self):
        for bucket in self._buckets[: self._launched]:
            bucket.finish()
        for bucket in self._buckets[self._launched :]:
            bucket.reset()
        self._launched = 0
