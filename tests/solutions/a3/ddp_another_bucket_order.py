"""Right: neighbouring buckets change places, and each is sent when its turn comes."""

from .ddp import DistributedDataParallel

TASK = "a3.DistributedDataParallel"
EXPECT = "passed"


class DistributedDataParallel(DistributedDataParallel):
    def __init__(self, module, group=None, bucket_bytes=25 << 20):
        super().__init__(module, group, bucket_bytes)
        for i in range(0, len(self._buckets) - 1, 2):
            self._buckets[i : i + 2] = reversed(self._buckets[i : i + 2])
