# ruff: noqa: F821 (names of the reference)
"""Uplinks as slow as hosts."""

TASK = "a0.leaf_spine"
EXPECT = {
    "status": "failed",
    "check": "oversubscribed",
    "cause": "",
}


_old = leaf_spine


def leaf_spine(leaves, spines, hosts_per_leaf, host_bandwidth, uplink_bandwidth):
    _old(leaves, spines, hosts_per_leaf, host_bandwidth, uplink_bandwidth)
    return _old(leaves, spines, hosts_per_leaf, host_bandwidth, host_bandwidth)
