"""Rank r holds stages rv, rv + 1, ..."""

from .schedules import interleaved_schedule as published

TASK = "a6.interleaved_schedule"
EXPECT = {
    "status": "failed",
    "check": "does everything once",
    "cause": "placement of stages",
}


def interleaved_schedule(ranks, microbatches, chunks):
    return [
        [s._replace(stage=s.stage % ranks * chunks + s.stage // ranks) for s in steps]
        for steps in published(ranks, microbatches, chunks)
    ]
