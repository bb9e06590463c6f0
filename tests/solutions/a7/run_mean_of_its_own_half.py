"""Each end returns the mean over the micro-batches that leave there."""

from .executor import _Copies
from .executor import run_dualpipe as right

TASK = "a7.run_dualpipe"
EXPECT = {
    "status": "failed",
    "check": "gives the loss and gradients",
    "cause": "that end on this rank",
}


def run_dualpipe(schedule, stages, inputs, targets, loss_fn, group=None):
    return right(schedule, stages, inputs, targets, loss_fn, group)


_Copies.mean_loss = lambda self, loss: loss
