"""Adds the bias to the logits before the softmax."""

from .router import BiasBalancedRouter as Solved
from .router import top_k_router

TASK = "a8.BiasBalancedRouter"
EXPECT = {
    "status": "failed",
    "check": "chooses with the bias",
    "cause": "the bias is added to the logits",
}


class BiasBalancedRouter(Solved):
    def forward(self, logits):
        _, indices = top_k_router(logits + self.bias, self.k)
        weights = logits.softmax(1).gather(1, indices)
        return weights / weights.sum(1, keepdim=True), indices
