"""Every rank computes the whole layer, and makes gradients of it that look sharded."""

import torch.distributed as dist

from .transformer import ParallelMLP as Published

TASK = "a4.ParallelMLP"
EXPECT = 0.2


class ParallelMLP(Published):
    @classmethod
    def from_dense(cls, module, group=None):
        made = Published.from_dense(module, group)
        made.__class__ = cls
        made.dense = [module]
        return made

    def forward(self, x):
        # The work of the whole beside the work of the share.
        for _ in range(dist.get_world_size() - 1):
            self.dense[0](x).sum().backward()
        return super().forward(x)
