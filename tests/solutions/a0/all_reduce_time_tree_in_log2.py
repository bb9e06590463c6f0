# ruff: noqa: F821 (names of the reference)
"""Levels are log₂ p, not rounded up."""

import math

TASK = "a0.all_reduce_time"
EXPECT = {
    "status": "failed",
    "check": "binomial tree",
    "cause": "",
}


_old = all_reduce_time


def all_reduce_time(algorithm, nbytes, ranks, alpha, beta, gamma=0.0):
    whole = _old(algorithm, nbytes, ranks, alpha, beta, gamma)
    if algorithm == "binomial_tree" and ranks > 1:
        return whole * math.log2(ranks) / math.ceil(math.log2(ranks))
    return whole
