"""Goes back through the default group."""

from .dispatch import combine as Solved

TASK = "a8.combine"
EXPECT = {
    "status": "failed",
    "check": "works in sub-groups",
    "cause": "it runs in the default group",
}


def combine(expert_output, weights, dispatched, group=None):
    return Solved(expert_output, weights, dispatched)
