"""Forgets that the input's gradient is a sum over the ranks."""

from torch.nn import functional as F

from .layers import ColumnParallelLinear as Solved
from .mappings import gather_from_tensor_parallel

TASK = "a4.ColumnParallelLinear"
EXPECT = {
    "status": "failed",
    "check": "equals the dense layer",
    "cause": "f is missing before the layer",
}


class ColumnParallelLinear(Solved):
    def forward(self, x):
        y = F.linear(x, self.weight, self.bias)
        return gather_from_tensor_parallel(y, self.group) if self.gather_output else y
