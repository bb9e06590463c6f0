"""Every replica trains a model of its own, on its own sequences."""

from torch import nn

from .train import _Replica

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "computes its share",
    "cause": "gradients are not exchanged",
}


class _Alone(_Replica):
    def __init__(self, config, mesh, parts, stage):
        nn.Module.__init__(self)
        self._config, self._experts = config, []
        self._parallel, self._run = [], [stage]


_Replica = _Alone
