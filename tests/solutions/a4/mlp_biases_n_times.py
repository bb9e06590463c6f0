"""down's bias is added on every rank before the sum."""

from torch.nn import functional as F

from .mappings import reduce_from_tensor_parallel
from .transformer import ParallelMLP as Solved

TASK = "a4.ParallelMLP"
EXPECT = {
    "status": "failed",
    "check": "equals the dense MLP",
    "cause": "the bias is added on every rank before the sum",
}


class ParallelMLP(Solved):
    def forward(self, x):
        y = F.linear(F.gelu(self.up(x)), self.down.weight, self.down.bias)
        return reduce_from_tensor_parallel(y, self.down.group)
