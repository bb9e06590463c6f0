"""A collective for every parameter, when the backward is over."""

import torch
import torch.distributed as dist

TASK = "a3.DistributedDataParallel"
EXPECT = 0.2


class DistributedDataParallel(torch.nn.Module):
    def __init__(self, module, group=None, bucket_bytes=25 << 20):
        super().__init__()
        self.module, self.group = module, group

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        for parameter in self.module.parameters():
            dist.all_reduce(parameter.grad, group=self.group)
            parameter.grad /= dist.get_world_size(self.group)
