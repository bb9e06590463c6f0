# ruff: noqa: F821 (names of the reference)
"""Takes the access switches for those of the whole tree."""

TASK = "a0.three_tier_tree"
EXPECT = {
    "status": "failed",
    "check": "right hosts",
    "cause": "",
}


_old = three_tier_tree


def three_tier_tree(cores, aggregations, accesses_per_aggregation, hosts_per_access, bandwidth):
    each = max(1, accesses_per_aggregation // aggregations)
    return _old(cores, aggregations, each, hosts_per_access, bandwidth)
