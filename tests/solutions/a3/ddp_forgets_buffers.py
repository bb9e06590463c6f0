"""Only the parameters are broadcast."""

from .ddp import DistributedDataParallel

TASK = "a3.DistributedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "starts from the first rank",
    "cause": "the buffer is still the rank's own",
}


class DistributedDataParallel(DistributedDataParallel):
    def __init__(self, module, group=None, bucket_bytes=25 << 20):
        own = [buffer.clone() for buffer in module.buffers()]
        super().__init__(module, group, bucket_bytes)
        for buffer, value in zip(module.buffers(), own):
            buffer.copy_(value)
