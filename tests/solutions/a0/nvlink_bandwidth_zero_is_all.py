# ruff: noqa: F821 (names of the reference)
"""`links or full`: no links are all of them."""

TASK = "a0.nvlink_bandwidth"
EXPECT = {
    "status": "failed",
    "check": "refuses",
    "cause": "not checked",
}


_old = nvlink_bandwidth


def nvlink_bandwidth(generation, links=None):
    return _old(generation, links or None)
