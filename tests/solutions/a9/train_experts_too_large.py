"""The experts' gradients are averaged over their own replicas only."""

from .train import _Replica

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "trains experts as one device does",
    "cause": "the experts' gradients are too large",
}


def _finish(self):
    for each in self._parallel:
        each.finish_gradient_synchronization()


_Replica.finish = _finish
