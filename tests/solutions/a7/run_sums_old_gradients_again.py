"""Sums all of .grad after every call."""

from .executor import _Copies
from .executor import run_dualpipe as right

TASK = "a7.run_dualpipe"
EXPECT = {
    "status": "failed",
    "check": "accumulates over calls",
    "cause": "was summed again",
}


def run_dualpipe(schedule, stages, inputs, targets, loss_fn, group=None):
    return right(schedule, stages, inputs, targets, loss_fn, group)


_Copies.put_gradients_aside = lambda self: []
