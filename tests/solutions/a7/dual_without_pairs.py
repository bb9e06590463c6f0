"""Forward and backward of a pair one after the other."""

from ..a6_pipeline_parallel.schedule import actions_of
from .schedules import dualpipe_schedule as published

TASK = "a7.dualpipe_schedule"
EXPECT = {
    "status": "failed",
    "check": "takes no longer",
    "cause": "no step is an overlapped pair",
}


def dualpipe_schedule(ranks, microbatches):
    return [
        [action for step in steps for action in actions_of(step)]
        for steps in published(ranks, microbatches)
    ]
