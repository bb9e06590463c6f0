"""Ranges whose end is the last layer."""

from .partition import partition_layers as exclusive

TASK = "a6.partition_layers"
EXPECT = {
    "status": "failed",
    "check": "makes the largest stage",
    "cause": "end is exclusive",
}


def partition_layers(costs, stages):
    return [(begin, end - 1) for begin, end in exclusive(costs, stages)]
