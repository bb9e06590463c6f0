"""Makes a schedule of whatever it is given."""

from .schedules import dualpipev_schedule as published

TASK = "a7.dualpipev_schedule"
EXPECT = {
    "status": "failed",
    "check": "refuses too few",
    "cause": "expected a ValueError",
}


def dualpipev_schedule(ranks, microbatches):
    ranks = max(1, ranks)
    return published(ranks, max(2 * ranks, microbatches))
