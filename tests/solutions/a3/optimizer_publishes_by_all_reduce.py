"""New parameters travel as a sum with zeros: twice the bytes."""

import torch.distributed as dist

from .zero import ShardedOptimizer

TASK = "a3.ShardedOptimizer"
EXPECT = {
    "status": "failed",
    "check": "moves each parameter once",
    "cause": "an all-reduce moves twice",
}


class ShardedOptimizer(ShardedOptimizer):
    def _publish(self):
        for owner, share in enumerate(self._shares):
            for parameter in share:
                if owner != self._rank:
                    parameter.zero_()
                value = parameter.contiguous()
                dist.all_reduce(value, group=self._group)
                parameter.copy_(value)
