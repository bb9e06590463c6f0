# ruff: noqa: F821 (names of the reference)
"""Every aggregation switch at one core."""

TASK = "a0.three_tier_tree"
EXPECT = {
    "status": "failed",
    "check": "right hosts",
    "cause": "",
}


_old = three_tier_tree


def three_tier_tree(cores, aggregations, accesses_per_aggregation, hosts_per_access, bandwidth):
    tree = _old(cores, aggregations, accesses_per_aggregation, hosts_per_access, bandwidth)
    for number in range(aggregations):
        for core in range(1, cores):
            tree.remove_edge(("core", core), ("aggregation", number))
    return tree
