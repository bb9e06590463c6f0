# ruff: noqa: F821 (names of the reference)
"""900 GB/s for the H100."""

TASK = "a0.nvlink_bandwidth"
EXPECT = {
    "status": "failed",
    "check": "full set",
    "cause": "both directions",
}


_old = nvlink_bandwidth


def nvlink_bandwidth(generation, links=None):
    return 2 * _old(generation, links)
