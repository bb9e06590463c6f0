"""Under sequence parallelism the last norm is a plain one: each rank's gradient is its tokens'."""

from .train import Head, _Stage

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "trains as one device does",
    "cause": "must be summed over tp",
}

_right = _Stage._cut


def _cut(self, layer):
    norm = layer.norm if isinstance(layer, Head) else None
    layer = _right(self, layer)
    if norm is not None:
        layer.norm = norm
    return layer


_Stage._cut = _cut
