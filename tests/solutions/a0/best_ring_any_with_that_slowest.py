# ruff: noqa: F821 (names of the reference)
"""Looks at the slowest link alone."""

TASK = "a0.best_ring"
EXPECT = {
    "status": "failed",
    "check": "fewest links",
    "cause": "fewest such wins",
}


_old_cycle = _cheapest_cycle


def _cheapest_cycle(cost):
    return _old_cycle(np.where(cost == 1, 0, cost))
