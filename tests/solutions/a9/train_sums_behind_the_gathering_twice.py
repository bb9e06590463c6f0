"""Under sequence parallelism the head's input gradient is summed by f, then by the gathering."""

from .train import Embedding, Head, _Stage

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "trains as one device does",
    "cause": "is summed over tp twice",
}


def _forward(self, x):
    sp = self._config.sp and self._config.tp > 1
    for layer in self.layers:
        if sp and isinstance(layer, Head):
            x = self._parts.gather_from_sequence_parallel(layer.norm(x), self._tp)
            x = layer.output(x)
            continue
        x = layer(x)
        if sp and isinstance(layer, Embedding):
            x = self._parts.scatter_to_sequence_parallel(x, self._tp)
    return x


_Stage.forward = _forward
