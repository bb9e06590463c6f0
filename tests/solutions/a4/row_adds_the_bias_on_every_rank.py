"""The bias comes out n times."""

from torch.nn import functional as F

from .layers import RowParallelLinear as Solved
from .mappings import reduce_from_tensor_parallel, scatter_to_tensor_parallel

TASK = "a4.RowParallelLinear"
EXPECT = {
    "status": "failed",
    "check": "equals the dense layer",
    "cause": "the bias is added on every rank before the sum",
}


class RowParallelLinear(Solved):
    def forward(self, x):
        if not self.input_is_parallel:
            x = scatter_to_tensor_parallel(x, self.group)
        return reduce_from_tensor_parallel(F.linear(x, self.weight, self.bias), self.group)
