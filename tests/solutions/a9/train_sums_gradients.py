"""Gradients summed over the replicas, not averaged."""

from .train import _Replica

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "trains as one device does",
    "cause": "summed over the dp replicas",
}

_finish = _Replica.finish


def _summed(self):
    _finish(self)
    for weight in self._weights_of_all:
        weight.grad.mul_(self._config.dp)


def _init(self, config, mesh, parts, stage, made=_Replica.__init__):
    made(self, config, mesh, parts, stage)
    self._weights_of_all = list(stage.parameters())


_Replica.__init__, _Replica.finish = _init, _summed
