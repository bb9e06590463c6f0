"""The formula of 1F1B."""

from .schedule import count_chunks

TASK = "a6.bubble_ratio"
EXPECT = {
    "status": "failed",
    "check": "is the largest idle time",
    "cause": "is the answer for one schedule",
}


def bubble_ratio(schedule, costs):
    p, (_, m) = len(schedule), count_chunks(schedule)
    return (p - 1) / (m + p - 1)
