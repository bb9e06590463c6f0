"""The middle ranks wait for each other before they send."""

from .schedules import dualpipe_schedule as published

TASK = "a7.dualpipe_schedule"
EXPECT = {
    "status": "failed",
    "check": "does everything once",
    "cause": "wait for each other for ever",
}


def dualpipe_schedule(ranks, microbatches):
    schedule = published(ranks, microbatches)
    for rank in (ranks // 2 - 1, ranks // 2):
        steps = schedule[rank]
        # The other direction first.
        steps[0], steps[1] = steps[1], steps[0]
    return schedule
