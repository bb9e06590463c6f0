# ruff: noqa: F821 (names of the reference)
"""Nothing to send, nothing to pay."""

TASK = "a0.path_time"
EXPECT = {
    "status": "failed",
    "check": "knows empty messages",
    "cause": "an empty message still pays latency",
}


_old = path_time


def path_time(nbytes, hops, chunk_bytes=None):
    return _old(nbytes, hops, chunk_bytes) if nbytes else 0.0
