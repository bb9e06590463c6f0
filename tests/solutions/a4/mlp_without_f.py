"""The input's gradient is the rank's own part."""

from torch.nn import functional as F

from .transformer import ParallelMLP as Solved

TASK = "a4.ParallelMLP"
EXPECT = {
    "status": "failed",
    "check": "equals the dense MLP",
    "cause": "f is missing before the layer",
}


class ParallelMLP(Solved):
    def forward(self, x):
        return self.down(F.gelu(F.linear(x, self.up.weight, self.up.bias)))
