"""Every replica trains on the whole batch, and equal gradients are averaged: the right bytes."""

from .train import _Training

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "computes its share",
    "cause": "every dp replica computes the whole batch",
}


class _Everything(_Training):
    def _own(self, whole):
        return [part.contiguous() for part in whole.chunk(self.config.microbatches, dim=1)]


_Training = _Everything
