"""dp is ignored: every replica trains on the whole batch, and nothing is averaged."""

from torch import nn

from .train import _Replica, _Training

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "computes its share",
    "cause": "every dp replica computes the whole batch",
}


class _Alone(_Replica):
    def __init__(self, config, mesh, parts, stage):
        nn.Module.__init__(self)
        self._config, self._experts = config, []
        self._parallel, self._run = [], [stage]


class _Everything(_Training):
    def _own(self, whole):
        return [part.contiguous() for part in whole.chunk(self.config.microbatches, dim=1)]


_Replica, _Training = _Alone, _Everything
