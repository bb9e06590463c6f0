"""What a scheduler writes into param_groups never reaches the step."""

import torch

from .zero import ShardedOptimizer

TASK = "a3.ShardedOptimizer"
EXPECT = {
    "status": "failed",
    "check": "parameter groups and options",
    "cause": "has no effect on the step",
}


class ShardedOptimizer(ShardedOptimizer):
    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._inner.step()
        self._publish()
        return loss
