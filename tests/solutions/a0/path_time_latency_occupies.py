# ruff: noqa: F821 (names of the reference)
"""A hop is busy while a chunk is in flight."""

TASK = "a0.path_time"
EXPECT = {
    "status": "failed",
    "check": "lets chunks follow",
    "cause": "",
}


_old = path_time


def path_time(nbytes, hops, chunk_bytes=None):
    if not hops or not nbytes or chunk_bytes is None or chunk_bytes < 1:
        return _old(nbytes, hops, chunk_bytes)
    free = [0.0] * len(hops)
    for begin in range(0, nbytes, chunk_bytes):
        now = 0.0
        for i, hop in enumerate(hops):
            size = min(chunk_bytes, nbytes - begin)
            now = free[i] = max(now, free[i]) + size / hop.bandwidth + hop.latency
    return now
