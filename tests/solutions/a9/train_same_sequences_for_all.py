"""All replicas train on the first share of the batch."""

from .train import _Training

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "trains as one device does",
    "cause": "every dp replica trains on the same sequences",
}


def _own(self, whole):
    own = whole.chunk(self.config.dp, dim=1)[0].to(self.process.device)
    return [part.contiguous() for part in own.chunk(self.config.microbatches, dim=1)]


_Training._own = _own
