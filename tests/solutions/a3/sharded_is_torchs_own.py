"""torch's own fully_shard under the task's name."""

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

TASK = "a3.FullyShardedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "trains as one process",
    "cause": "torch's own code does the work",
}


class FullyShardedDataParallel(nn.Module):
    def __init__(self, module, group=None):
        super().__init__()
        group = dist.group.WORLD if group is None else group
        self.module = fully_shard(module, mesh=DeviceMesh.from_group(group, "cpu"))

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def finish_gradient_synchronization(self):
        pass

    def gather_full_state_dict(self):
        return {k: v.full_tensor() for k, v in self.module.state_dict().items()}
