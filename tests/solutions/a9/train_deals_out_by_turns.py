"""Right: sequence i goes to replica i mod dp; the mean over the batch is the same."""

from .train import _Training

TASK = "a9.train"
EXPECT = "passed"


def _own(self, whole):
    own = whole[:, self.at["dp"] :: self.config.dp].to(self.process.device)
    return [part.contiguous() for part in own.chunk(self.config.microbatches, dim=1)]


_Training._own = _own
