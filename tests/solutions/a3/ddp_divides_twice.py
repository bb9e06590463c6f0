"""Gradients are divided before they are added up, and once more after."""

import torch.distributed as dist

from .ddp import DistributedDataParallel, _Bucket

TASK = "a3.DistributedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "trains as one process",
    "cause": "averaged twice",
}


class _Twice(_Bucket):
    def finish(self):
        parameters = self.parameters
        super().finish()
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.div_(dist.get_world_size(_GROUP))


_GROUP = None
_Bucket = _Twice


class DistributedDataParallel(DistributedDataParallel):
    def finish_gradient_synchronization(self):
        global _GROUP
        _GROUP = self._group
        super().finish_gradient_synchronization()
