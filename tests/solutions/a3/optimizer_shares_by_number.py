"""Parameters are dealt out in turn, whatever their size."""

import torch

from .zero import ShardedOptimizer, _options

TASK = "a3.ShardedOptimizer"
EXPECT = {
    "status": "failed",
    "check": "keeps the states of its share",
    "cause": "whatever their sizes",
}


class ShardedOptimizer(ShardedOptimizer):
    def add_param_group(self, param_group):
        torch.optim.Optimizer.add_param_group(self, param_group)
        for i, parameter in enumerate(self.param_groups[-1]["params"]):
            self._shares[i % len(self._shares)].append(parameter)
        if self._inner is not None:
            self._inner.add_param_group(self._mine(self.param_groups[-1]))
            self.param_groups[-1].update(_options(self._inner.param_groups[-1]))
