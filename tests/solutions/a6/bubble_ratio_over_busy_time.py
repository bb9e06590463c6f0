"""Idle time over busy time."""

from .timeline import time_schedule

TASK = "a6.bubble_ratio"
EXPECT = {
    "status": "failed",
    "check": "is the largest idle time",
    "cause": "divided by the busy time",
}


def bubble_ratio(schedule, costs):
    timeline = time_schedule(schedule, costs)
    return max(b / (timeline.makespan - b) for b in timeline.bubbles)
