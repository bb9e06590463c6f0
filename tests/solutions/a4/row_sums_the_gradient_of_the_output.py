"""Puts f behind g: the output's gradient, whole on every rank, is summed again."""

from .layers import RowParallelLinear as Solved
from .mappings import copy_to_tensor_parallel

TASK = "a4.RowParallelLinear"
EXPECT = {
    "status": "failed",
    "check": "equals the dense layer",
    "cause": "the gradient is summed over ranks that all have it already",
}


class RowParallelLinear(Solved):
    def forward(self, x):
        return copy_to_tensor_parallel(super().forward(x), self.group)
