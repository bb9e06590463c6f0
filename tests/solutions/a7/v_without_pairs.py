"""Forward and backward of a pair one after the other."""

from ..a6_pipeline_parallel.schedule import actions_of
from .schedules import dualpipev_schedule as published

TASK = "a7.dualpipev_schedule"
EXPECT = {
    "status": "failed",
    "check": "takes no longer",
    "cause": "no step is an overlapped pair",
}


def dualpipev_schedule(ranks, microbatches):
    return [
        [action for step in steps for action in actions_of(step)]
        for steps in published(ranks, microbatches)
    ]
