"""Gradients of the inputs only."""

from .schedules import zero_bubble_schedule as published

TASK = "a6.zero_bubble_schedule"
EXPECT = {
    "status": "failed",
    "check": "does everything once",
    "cause": "weight gradients are never computed",
}


def zero_bubble_schedule(stages, microbatches):
    schedule = published(stages, microbatches)
    return [[step for step in steps if step.kind != "W"] for steps in schedule]
