# ruff: noqa: F821 (names of the reference)
"""Other numbers of ranks are rounded up."""

TASK = "a0.all_reduce_time"
EXPECT = {
    "status": "failed",
    "check": "recursive doubling",
    "cause": "a message before and one after",
}


_old = all_reduce_time


def all_reduce_time(algorithm, nbytes, ranks, alpha, beta, gamma=0.0):
    if algorithm in ("recursive_doubling", "halving_doubling") and ranks > 1:
        ranks = 1 << (ranks - 1).bit_length()
    return _old(algorithm, nbytes, ranks, alpha, beta, gamma)
