"""The norm counts what tp ranks hold alike once for each of them."""

import math

from .train import _Training, clip_grad_norm

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "clips by the norm",
    "cause": "what all tp ranks hold (norms, some biases) is counted once for each",
}


def _clip(self):
    counted = [w.parameter for w in self.stage.weights if self.at["edp" if w.expert else "dp"] == 0]
    norm = float(clip_grad_norm(counted, [], math.inf))
    for weight in self.stage.weights:
        weight.parameter.grad.mul_(min(1.0, self.config.max_norm / (norm + 1e-6)))
    return norm


_Training._clip = _clip
