"""Micro-batches 1 to m."""

from .schedule import Action

TASK = "a6.gpipe_schedule"
EXPECT = {
    "status": "failed",
    "check": "does everything once",
    "cause": "micro-batches are counted from 1",
}


def gpipe_schedule(stages, microbatches):
    return [
        [Action(kind, stage, i + 1) for kind in "FB" for i in range(microbatches)]
        for stage in range(stages)
    ]
