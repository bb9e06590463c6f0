"""The sum of the gradients is never divided."""

import torch.distributed as dist

from .ddp import _Bucket

TASK = "a3.DistributedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "trains as one process",
    "cause": "never divided by the number of ranks",
}


class _Sum(_Bucket):
    def launch(self, group):
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(dist.get_world_size(group))
        super().launch(group)


_Bucket = _Sum
