"""The weights are those of the biased scores."""

from .router import BiasBalancedRouter as Solved

TASK = "a8.BiasBalancedRouter"
EXPECT = {
    "status": "failed",
    "check": "chooses with the bias",
    "cause": "the bias leaks into the weights",
}


class BiasBalancedRouter(Solved):
    def forward(self, logits):
        _, indices = super().forward(logits)
        weights = (logits.softmax(1) + self.bias).gather(1, indices)
        return weights / weights.sum(1, keepdim=True), indices
