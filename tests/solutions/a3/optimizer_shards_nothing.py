"""Every rank steps everything: right in value, and no byte is saved."""

import torch

TASK = "a3.ShardedOptimizer"
EXPECT = {
    "status": "failed",
    "check": "keeps the states of its share",
    "cause": "nothing is sharded",
}


class ShardedOptimizer(torch.optim.Optimizer):
    def __init__(self, params, optimizer_class, group=None, **kwargs):
        self.inner = optimizer_class(params, **kwargs)
        self.param_groups, self.defaults = self.inner.param_groups, self.inner.defaults

    def add_param_group(self, param_group):
        self.inner.add_param_group(param_group)

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)

    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.inner.step()
        return loss

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, state_dict):
        self.inner.load_state_dict(state_dict)
