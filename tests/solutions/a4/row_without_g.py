"""Partial results are never added up."""

from torch.nn import functional as F

from .layers import RowParallelLinear as Solved
from .mappings import scatter_to_tensor_parallel

TASK = "a4.RowParallelLinear"
EXPECT = {
    "status": "failed",
    "check": "equals the dense layer",
    "cause": "g is missing after the layer",
}


class RowParallelLinear(Solved):
    def forward(self, x):
        if not self.input_is_parallel:
            x = scatter_to_tensor_parallel(x, self.group)
        return F.linear(x, self.weight, self.bias)
