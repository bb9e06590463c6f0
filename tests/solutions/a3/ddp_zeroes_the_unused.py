"""A parameter that nobody used gets a gradient of zeros."""

import torch

from .ddp import DistributedDataParallel

TASK = "a3.DistributedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "unused, shared and frozen",
    "cause": "its gradient must stay None",
}


class DistributedDataParallel(DistributedDataParallel):
    def finish_gradient_synchronization(self):
        for parameter in self._bucket_of:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        super().finish_gradient_synchronization()
