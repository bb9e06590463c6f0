# ruff: noqa: F821 (names of the reference)
"""The hops overlap as if bytes flowed."""

TASK = "a0.path_time"
EXPECT = {
    "status": "failed",
    "check": "stores and forwards",
    "cause": "overlap completely",
}


_old = path_time


def path_time(nbytes, hops, chunk_bytes=None):
    _old(nbytes, hops, chunk_bytes)
    slowest = min((hop.bandwidth for hop in hops), default=1.0)
    return sum(hop.latency for hop in hops) + (nbytes / slowest if hops else 0)
