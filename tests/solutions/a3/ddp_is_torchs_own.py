"""torch's own layer under the task's name."""

from torch.nn.parallel import DistributedDataParallel as TorchDDP

TASK = "a3.DistributedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "trains as one process",
    "cause": "torch's own code does the work",
}


class DistributedDataParallel(TorchDDP):
    def __init__(self, module, group=None, bucket_bytes=25 << 20):
        super().__init__(module, process_group=group, bucket_cap_mb=max(bucket_bytes / 2**20, 1e-3))

    def finish_gradient_synchronization(self):
        pass
