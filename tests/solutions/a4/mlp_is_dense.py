"""The dense MLP on every rank."""

import copy

from torch import nn
from torch.nn import functional as F

TASK = "a4.ParallelMLP"
EXPECT = {
    "status": "failed",
    "check": "keeps its own shards only",
    "cause": "this parameter was not cut",
}


class ParallelMLP(nn.Module):
    @classmethod
    def from_dense(cls, module, group=None):
        parallel = cls()
        parallel.up, parallel.down = copy.deepcopy(module.up), copy.deepcopy(module.down)
        return parallel

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))
