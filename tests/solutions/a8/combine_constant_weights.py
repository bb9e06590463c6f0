"""The weights count as constants in backward."""

from .dispatch import combine as Solved

TASK = "a8.combine"
EXPECT = {
    "status": "failed",
    "check": "gives results and weights their gradients",
    "cause": "the weights' gradient is missing",
}


def combine(expert_output, weights, dispatched, group=None):
    return Solved(expert_output, weights.detach(), dispatched, group)
