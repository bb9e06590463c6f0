"""Idle time of rank 0 only."""

from .timeline import time_schedule

TASK = "a6.bubble_ratio"
EXPECT = {
    "status": "failed",
    "check": "is the largest idle time",
    "cause": "the idle time of rank 0",
}


def bubble_ratio(schedule, costs):
    timeline = time_schedule(schedule, costs)
    return timeline.bubbles[0] / timeline.makespan
