# ruff: noqa: F821 (names of the reference)
"""Rounds k down."""

TASK = "a0.fat_tree"
EXPECT = {
    "status": "failed",
    "check": "refuses an odd k",
    "cause": "not checked",
}


_old = fat_tree


def fat_tree(k, bandwidth):
    return _old(k // 2 * 2, bandwidth)
