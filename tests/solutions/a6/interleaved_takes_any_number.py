"""Rounds the micro-batches up to a multiple of the ranks and leaves out the rest."""

from .schedules import interleaved_schedule as published

TASK = "a6.interleaved_schedule"
EXPECT = {
    "status": "failed",
    "check": "refuses sizes",
    "cause": "expected a ValueError",
}


def interleaved_schedule(ranks, microbatches, chunks):
    whole = -(-microbatches // ranks) * ranks
    schedule = published(ranks, whole, chunks)
    return [[step for step in steps if step.microbatch < microbatches] for steps in schedule]
