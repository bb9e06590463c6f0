"""More stages than layers get nothing to do."""

from .partition import partition_layers as checked

TASK = "a6.partition_layers"
EXPECT = {
    "status": "failed",
    "check": "refuses more stages",
    "cause": "expected a ValueError",
}


def partition_layers(costs, stages):
    used = max(1, min(stages, len(costs)))
    cut = checked(costs, used) if costs else []
    return cut + [(len(costs), len(costs))] * (stages - len(cut))
