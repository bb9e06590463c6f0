"""Each bucket is waited for as soon as it is sent."""

from .ddp import DistributedDataParallel

TASK = "a3.DistributedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "hides communication",
    "cause": "backward waits for the communication it begins",
}


class DistributedDataParallel(DistributedDataParallel):
    def _on_gradient(self, parameter):
        before = self._launched
        super()._on_gradient(parameter)
        for bucket in self._buckets[before : self._launched]:
            bucket.work.wait()
