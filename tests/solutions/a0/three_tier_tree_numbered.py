# ruff: noqa: F821 (names of the reference)
"""Right: nodes are numbers, hosts first."""

TASK = "a0.three_tier_tree"
EXPECT = "passed"


_old = three_tier_tree


def three_tier_tree(cores, aggregations, accesses_per_aggregation, hosts_per_access, bandwidth):
    tree = _old(cores, aggregations, accesses_per_aggregation, hosts_per_access, bandwidth)
    order = sorted(tree, key=lambda node: (tree.nodes[node]["kind"], str(node)))
    return nx.relabel_nodes(tree, {node: number for number, node in enumerate(order)})
