# ruff: noqa: F821 (names of the reference)
"""All chunks are as long as the first."""

TASK = "a0.path_time"
EXPECT = {
    "status": "failed",
    "check": "shorter last chunk",
    "cause": "last chunk is shorter",
}


_old = path_time


def path_time(nbytes, hops, chunk_bytes=None):
    if chunk_bytes is None or chunk_bytes < 1 or nbytes < 0:
        return _old(nbytes, hops, chunk_bytes)
    return _old(-(-nbytes // chunk_bytes) * chunk_bytes, hops, chunk_bytes)
