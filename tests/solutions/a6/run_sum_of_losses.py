"""The sum over micro-batches where the mean is meant."""

from .executor import run_schedule as mean

TASK = "a6.run_schedule"
EXPECT = {
    "status": "failed",
    "check": "gives the loss and gradients",
    "cause": "summed over micro-batches",
}


def run_schedule(schedule, stages, inputs, targets, loss_fn, group=None):
    count = 1 + max(step.microbatch for steps in schedule for step in steps)
    return mean(schedule, stages, inputs, targets, lambda y, t: loss_fn(y, t) * count, group)
