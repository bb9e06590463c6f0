"""The halves of a pair run one after the other."""

from .executor import run_dualpipe as right

TASK = "a7.run_dualpipe"
EXPECT = {
    "status": "failed",
    "check": "takes the time of the schedule",
    "cause": "overlapped_forward_backward is not used",
}


def run_dualpipe(schedule, stages, inputs, targets, loss_fn, group=None):
    return right(schedule, stages, inputs, targets, loss_fn, group)


def overlapped_forward_backward(forward, backward):
    forward.run()
    backward.run()
