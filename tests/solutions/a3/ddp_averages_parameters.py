"""Every rank trains on its own gradients; the parameters are averaged after each step."""

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from .ddp import broadcast_from_first

TASK = "a3.DistributedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "trains as one process",
    "cause": "the parameters are averaged, not the gradients",
}


class DistributedDataParallel(nn.Module):
    def __init__(self, module, group=None, bucket_bytes=25 << 20):
        super().__init__()
        self.module, self.group = module, group
        broadcast_from_first([*module.parameters(), *module.buffers()], group)

    def forward(self, *args, **kwargs):
        with torch.no_grad():
            for parameter in self.module.parameters():
                dist.all_reduce(parameter, group=self.group)
                parameter.div_(dist.get_world_size(self.group))
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self):
        yield

    def finish_gradient_synchronization(self):
        pass
