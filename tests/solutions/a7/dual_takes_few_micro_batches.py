"""Makes a schedule of whatever it is given."""

from .schedules import dualpipe_schedule as published

TASK = "a7.dualpipe_schedule"
EXPECT = {
    "status": "failed",
    "check": "refuses odd ranks",
    "cause": "expected a ValueError",
}


def dualpipe_schedule(ranks, microbatches):
    ranks += ranks % 2
    return published(max(2, ranks), max(2 * ranks, microbatches + microbatches % 2))
