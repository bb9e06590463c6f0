"""Backwards visit the chunks from the first to the last."""

from .schedule import Action

TASK = "a6.interleaved_schedule"
EXPECT = {
    "status": "failed",
    "check": "does everything once",
    "cause": "in the reverse order",
}


def interleaved_schedule(ranks, microbatches, chunks):
    schedule = []
    for rank in range(ranks):
        order = [(chunk, i) for chunk in range(chunks) for i in range(microbatches)]
        steps = [Action(kind, c * ranks + rank, i) for kind in "FB" for c, i in order]
        schedule.append(steps)
    return schedule
