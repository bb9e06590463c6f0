# ruff: noqa: F821 (names of the reference)
"""Hosts hang on spines, too."""

TASK = "a0.leaf_spine"
EXPECT = {
    "status": "failed",
    "check": "diameter and bisection",
    "cause": "",
}


_old = leaf_spine


def leaf_spine(leaves, spines, hosts_per_leaf, host_bandwidth, uplink_bandwidth):
    net = _old(leaves, spines, hosts_per_leaf, host_bandwidth, uplink_bandwidth)
    host, leaf = ("host", 0, 0), ("leaf", 0)
    net.remove_edge(host, leaf)
    net.add_edge(host, ("spine", 0), bandwidth=host_bandwidth)
    return net
