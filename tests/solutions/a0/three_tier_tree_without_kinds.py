# ruff: noqa: F821 (names of the reference)
"""Nodes that do not say what they are."""

TASK = "a0.three_tier_tree"
EXPECT = {
    "status": "failed",
    "check": "right hosts",
    "cause": "nodes carry `kind`",
}


_old = three_tier_tree


def three_tier_tree(cores, aggregations, accesses_per_aggregation, hosts_per_access, bandwidth):
    tree = _old(cores, aggregations, accesses_per_aggregation, hosts_per_access, bandwidth)
    for node in tree:
        del tree.nodes[node]["kind"]
    return tree
