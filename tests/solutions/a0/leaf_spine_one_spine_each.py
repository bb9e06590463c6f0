# ruff: noqa: F821 (names of the reference)
"""Every leaf at one spine."""

TASK = "a0.leaf_spine"
EXPECT = {
    "status": "failed",
    "check": "right hosts",
    "cause": "",
}


_old = leaf_spine


def leaf_spine(leaves, spines, hosts_per_leaf, host_bandwidth, uplink_bandwidth):
    net = _old(leaves, spines, hosts_per_leaf, host_bandwidth, uplink_bandwidth)
    for leaf in range(leaves):
        for spine in range(spines):
            if spine != leaf % spines:
                net.remove_edge(("leaf", leaf), ("spine", spine))
    return net
