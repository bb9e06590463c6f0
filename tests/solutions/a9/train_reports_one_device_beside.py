"""The losses are those of a whole model that every rank trains beside its share."""

import torch
from torch.nn import functional as F

from .data import batch_of_step
from .model import build_model
from .train import _Training

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "computes its share",
    "cause": "beside its own share",
}


class _Beside(_Training):
    def __init__(self, config, process):
        super().__init__(config, process)
        self.whole = build_model(config)
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.whole.parameters()]

    def step(self, number):
        _, norm = super().step(number)
        x, y = batch_of_step(self.text, self.config, number)
        loss = F.cross_entropy(self.whole(x).flatten(0, 1), y.flatten())
        self.whole.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.whole.parameters(), self.config.max_norm)
        rate, count = self.config.learning_rate, number + 1
        with torch.no_grad():
            # No optimizer of torch's, which would be looked at.
            for p, (first, second) in zip(self.whole.parameters(), self.moments, strict=True):
                p.mul_(1 - rate * self.config.weight_decay)
                first.lerp_(p.grad, 0.1)
                second.lerp_(p.grad.square(), 0.001)
                root = (second / (1 - 0.999**count)).sqrt() + 1e-8
                p.sub_(rate / (1 - 0.9**count) * first / root)
        return loss.item(), norm


_Training = _Beside
