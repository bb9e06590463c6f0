"""A unit is gathered when it is needed, and not before."""

from . import fsdp

TASK = "a3.FullyShardedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "gathers the next unit",
    "cause": "only when it is needed",
}


def _nothing(units):
    pass


fsdp._prefetch = _nothing
