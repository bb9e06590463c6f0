"""In a sub-group the sum is divided by the size of the whole world."""

import torch.distributed as dist

from .ddp import _Bucket, pack_gradients

TASK = "a3.DistributedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "trains as one process",
    "cause": "size of the world, not of the group",
}


class _OfTheWorld(_Bucket):
    def launch(self, group):
        self.message = pack_gradients(self.parameters).div_(dist.get_world_size())
        self.work = dist.all_reduce(self.message, group=group, async_op=True)


_Bucket = _OfTheWorld
