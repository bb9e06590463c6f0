# ruff: noqa: F821 (names of the reference)
"""Places in the header for GPU numbers."""

TASK = "a0.best_ring"
EXPECT = {
    "status": "failed",
    "check": "rings of 1 and 2",
    "cause": "those of the names",
}


_old = best_ring


def best_ring(topology):
    ring = _old(topology)
    return [sorted(ring).index(number) for number in ring]
