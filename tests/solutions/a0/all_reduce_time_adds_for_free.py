# ruff: noqa: F821 (names of the reference)
"""γ is not looked at."""

TASK = "a0.all_reduce_time"
EXPECT = {
    "status": "failed",
    "check": "time of adding",
    "cause": "γ is left out",
}


_old = all_reduce_time


def all_reduce_time(algorithm, nbytes, ranks, alpha, beta, gamma=0.0):
    return _old(algorithm, nbytes, ranks, alpha, beta)
