# ruff: noqa: F821 (names of the reference)
"""The CPUs work while the wire is busy."""

TASK = "a0.message_time"
EXPECT = {
    "status": "failed",
    "check": "tells the time",
    "cause": "nothing overlaps",
}


_old = message_time


def message_time(nbytes, transport):
    cpu = _old(nbytes, transport).cpu_seconds
    return MessageTime(transport.latency + max(nbytes / transport.bandwidth, cpu), cpu)
