"""bucket_bytes is not looked at: one bucket for everything."""

from .ddp import DistributedDataParallel

TASK = "a3.DistributedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "in buckets",
    "cause": "bucket_bytes is ignored",
}


class DistributedDataParallel(DistributedDataParallel):
    def __init__(self, module, group=None, bucket_bytes=25 << 20):
        super().__init__(module, group, bucket_bytes and max(bucket_bytes, 1 << 40))
