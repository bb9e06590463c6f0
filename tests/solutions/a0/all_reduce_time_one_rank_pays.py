# ruff: noqa: F821 (names of the reference)
"""One rank sends to itself."""

TASK = "a0.all_reduce_time"
EXPECT = {
    "status": "failed",
    "check": "costs nothing for one rank",
    "cause": "which costs nothing",
}


_old = all_reduce_time


def all_reduce_time(algorithm, nbytes, ranks, alpha, beta, gamma=0.0):
    return _old(algorithm, nbytes, ranks, alpha, beta, gamma) or 2 * alpha
