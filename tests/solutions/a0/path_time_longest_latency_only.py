# ruff: noqa: F821 (names of the reference)
"""Adds the longest latency alone, as if the hops' flights were one."""

TASK = "a0.path_time"
EXPECT = {
    "status": "failed",
    "check": "lets chunks follow",
    "cause": "not the longest alone",
}


_old = path_time


def path_time(nbytes, hops, chunk_bytes=None):
    latencies = [hop.latency for hop in hops]
    seconds = _old(nbytes, hops, chunk_bytes)
    return seconds - sum(latencies) + max(latencies, default=0.0)
