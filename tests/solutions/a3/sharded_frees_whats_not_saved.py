"""What forward saved for backward keeps every whole parameter alive."""

import torch

from . import fsdp
from .fsdp import _FlatShard

TASK = "a3.FullyShardedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "shards and two units",
    "cause": "outlive forward",
}


class _Fresh(_FlatShard):
    def free(self):
        self.wait()
        nothing = self.shard.new_empty(1)
        self.full = nothing.expand(self.shard.numel() * self.size)
        for whole in self.wholes:
            whole.data = nothing.expand(whole.shape)
        self.gathered = False

    def gather(self):
        if not self.gathered and self.gathering is None:
            size = self.shard.numel() * self.size
            self.full = self.shard.new_empty(size)
            self.gathering = torch.distributed.all_gather_into_tensor(
                self.full, self.shard, self.group, async_op=True
            )

    def wait(self):
        if self.gathering is not None:
            super().wait()
            start = 0
            for whole, shape in zip(self.wholes, self.shapes):
                whole.data = self.full[start : start + shape.numel()].view(shape)
                start += shape.numel()

    def __init__(self, parameters, group):
        self.shapes = [parameter.shape for parameter in parameters]
        super().__init__(parameters, group)


fsdp._FlatShard = _Fresh
