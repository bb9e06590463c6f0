"""Each rank keeps the parameters' gradients of its own tokens."""

from torch.nn import functional as F

from .sequence import SequenceParallelLayerNorm as Solved

TASK = "a5.SequenceParallelLayerNorm"
EXPECT = {
    "status": "failed",
    "check": "equals the dense norm",
    "cause": "this rank's tokens only",
}


class SequenceParallelLayerNorm(Solved):
    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)
