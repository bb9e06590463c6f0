"""Rank r holds stages rv, rv + 1, ..."""

from .schedules import interleaved_schedule as published

TASK = "a6.interleaved_schedule"
EXPECT = {
    "status": "failed",
    "check": "does everything once",
    "cause": "other ranks than the docstring",
}


def interleaved_schedule(ranks, microbatches, chunks):
    return [
        [s._replace(stage=s.stage % ranks * chunks + s.stage // ranks) for s in steps]
        for steps in published(ranks, microbatches, chunks)
    ]
