# ruff: noqa: F821 (names of the reference)
"""Of the two directions the larger."""

TASK = "a0.best_ring"
EXPECT = {
    "status": "failed",
    "check": "smallest sequence",
    "cause": "smaller sequence counts",
}


_old = best_ring


def best_ring(topology):
    first, *rest = _old(topology)
    return [first, *reversed(rest)]
