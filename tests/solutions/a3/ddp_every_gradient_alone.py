"""Each gradient has a bucket of its own, whatever bucket_bytes says."""

from .ddp import DistributedDataParallel

TASK = "a3.DistributedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "in buckets",
    "cause": "every gradient travels alone",
}


class DistributedDataParallel(DistributedDataParallel):
    def __init__(self, module, group=None, bucket_bytes=25 << 20):
        super().__init__(module, group, min(bucket_bytes, 1))
