"""Right: dealt out in the order of registration, one broadcast per parameter."""

import torch
import torch.distributed as dist

from .zero import ShardedOptimizer, _options

TASK = "a3.ShardedOptimizer"
EXPECT = "passed"


class ShardedOptimizer(ShardedOptimizer):
    def add_param_group(self, param_group):
        torch.optim.Optimizer.add_param_group(self, param_group)
        for parameter in self.param_groups[-1]["params"]:
            loads = [sum(each.numel() for each in share) for share in self._shares]
            self._shares[loads.index(min(loads))].append(parameter)
        if self._inner is not None:
            self._inner.add_param_group(self._mine(self.param_groups[-1]))
            self.param_groups[-1].update(_options(self._inner.param_groups[-1]))

    def _publish(self):
        for owner, share in enumerate(self._shares):
            for parameter in share:
                value = parameter.contiguous()
                dist.broadcast(value, group=self._group, group_src=owner)
                parameter.copy_(value)
