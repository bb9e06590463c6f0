"""Goes back through the default group."""

from .dispatch import combine as Solved

TASK = "a8.combine"
EXPECT = {
    "status": "failed",
    "check": "works in sub-groups",
    "cause": "a group rank is not the global rank",
}


def combine(expert_output, weights, dispatched, group=None):
    return Solved(expert_output, weights, dispatched)
