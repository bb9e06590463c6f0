# ruff: noqa: F821 (names of the reference)
"""Reduce-scatter, and no all-gather."""

TASK = "a0.all_reduce_time"
EXPECT = {
    "status": "failed",
    "check": "knows the ring",
    "cause": "half of the algorithm",
}


_old = all_reduce_time


def all_reduce_time(algorithm, nbytes, ranks, alpha, beta, gamma=0.0):
    whole = _old(algorithm, nbytes, ranks, alpha, beta, gamma)
    return whole / 2 if algorithm == "ring" else whole
