"""Gathers shares of the input and of the weight, and does all of the work on every rank."""

from torch.nn import functional as F

from .layers import RowParallelLinear as Solved
from .mappings import (
    gather_from_tensor_parallel,
    reduce_from_tensor_parallel,
    scatter_to_tensor_parallel,
)

TASK = "a4.RowParallelLinear"
EXPECT = {
    "status": "failed",
    "check": "sends one all-reduce forward",
    "cause": "one all-reduce of the partial outputs is enough",
}


class RowParallelLinear(Solved):
    def forward(self, x):
        if self.input_is_parallel:
            x = gather_from_tensor_parallel(x, self.group)
        x = scatter_to_tensor_parallel(x, self.group)
        y = reduce_from_tensor_parallel(F.linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias
