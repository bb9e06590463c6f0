"""Every rank clips by the norm of what it holds."""

from torch import nn

from .train import _Training

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "clips by the norm",
    "cause": "clips by the norm of a part of the model",
}


def _clip(self):
    parameters = [weight.parameter for weight in self.stage.weights]
    return float(nn.utils.clip_grad_norm_(parameters, self.config.max_norm))


_Training._clip = _clip
