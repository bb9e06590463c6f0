"""Gathers what up makes, only for down to cut it again."""

from .layers import ColumnParallelLinear, RowParallelLinear
from .transformer import ParallelMLP as Solved

TASK = "a4.ParallelMLP"
EXPECT = {
    "status": "failed",
    "check": "sends one all-reduce forward",
    "cause": "it stays cut",
}


class ParallelMLP(Solved):
    @classmethod
    def from_dense(cls, module, group=None):
        parallel = super().from_dense(module, group)
        parallel.up = ColumnParallelLinear.from_linear(module.up, group, gather_output=True)
        parallel.down = RowParallelLinear.from_linear(module.down, group, input_is_parallel=False)
        return parallel
