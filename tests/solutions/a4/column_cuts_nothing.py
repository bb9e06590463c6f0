"""The dense layer, whose output is sliced: right in value."""

from torch import nn
from torch.nn import functional as F

from .mappings import scatter_to_tensor_parallel

TASK = "a4.ColumnParallelLinear"
EXPECT = {
    "status": "failed",
    "check": "keeps its own shards only",
    "cause": "this parameter was not cut",
}


class ColumnParallelLinear(nn.Module):
    @classmethod
    def from_linear(cls, linear, group=None, gather_output=False):
        layer = cls()
        layer.group, layer.gather = group, gather_output
        layer.weight = nn.Parameter(linear.weight.detach().clone())
        layer.bias = linear.bias
        return layer

    def forward(self, x):
        y = F.linear(x, self.weight, self.bias)
        return y if self.gather else scatter_to_tensor_parallel(y, self.group)
