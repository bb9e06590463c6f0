"""Gradients are reduce-scattered and never divided."""

from .fsdp import _FlatShard

TASK = "a3.FullyShardedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "trains as one process",
    "cause": "not averaged",
}


_reduce = _FlatShard.reduce


def _sum(flat):
    for whole in flat.wholes:
        if whole.grad is not None:
            whole.grad.mul_(flat.size)
    _reduce(flat)


_FlatShard.reduce = _sum
