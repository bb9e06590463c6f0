"""Whole parameters stay on every rank; only the gradients are averaged."""

import torch
import torch.distributed as dist
from torch import nn

TASK = "a3.FullyShardedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "nothing but shards",
    "cause": "nothing was sharded",
}


class FullyShardedDataParallel(nn.Module):
    def __init__(self, module, group=None):
        super().__init__()
        self.module, self.group = module, group

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                gradient = parameter.grad.contiguous()
                dist.all_reduce(gradient, group=self.group)
                parameter.grad.copy_(gradient / dist.get_world_size(self.group))

    def gather_full_state_dict(self):
        return {k.replace("module.", ""): v.clone() for k, v in self.module.state_dict().items()}
