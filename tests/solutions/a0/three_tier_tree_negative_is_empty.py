# ruff: noqa: F821 (names of the reference)
"""range() of a negative number is empty."""

TASK = "a0.three_tier_tree"
EXPECT = {
    "status": "failed",
    "check": "refuses",
    "cause": "not checked",
}


_old = three_tier_tree


def three_tier_tree(cores, aggregations, accesses_per_aggregation, hosts_per_access, bandwidth):
    if min(cores, aggregations, accesses_per_aggregation, hosts_per_access) < 1:
        return nx.Graph()
    return _old(cores, aggregations, accesses_per_aggregation, hosts_per_access, bandwidth)
