# ruff: noqa: F821 (names of the reference)
"""Always the full set."""

TASK = "a0.nvlink_bandwidth"
EXPECT = {
    "status": "failed",
    "check": "some of the links",
    "cause": "`links` is ignored",
}


_old = nvlink_bandwidth


def nvlink_bandwidth(generation, links=None):
    _old(generation, links)
    return _old(generation)
