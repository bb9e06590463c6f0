# ruff: noqa: F821 (names of the reference)
"""A number instead of two."""

TASK = "a0.message_time"
EXPECT = {
    "status": "failed",
    "check": "tells the CPU seconds",
    "cause": "both numbers are asked for",
}


_old = message_time


def message_time(nbytes, transport):
    return _old(nbytes, transport).seconds
