# ruff: noqa: F821 (names of the reference)
"""Right: starts from a graph that networkx has."""

TASK = "a0.leaf_spine"
EXPECT = "passed"


def leaf_spine(leaves, spines, hosts_per_leaf, host_bandwidth, uplink_bandwidth):
    given = (leaves, spines, hosts_per_leaf, host_bandwidth, uplink_bandwidth)
    if min(given) <= 0:
        raise ValueError(f"not above 0: {given}")
    net = nx.complete_bipartite_graph(leaves, spines)
    nx.set_node_attributes(net, "switch", "kind")
    nx.set_edge_attributes(net, uplink_bandwidth, "bandwidth")
    for number in range(leaves * hosts_per_leaf):
        net.add_node(f"h{number}", kind="host")
        net.add_edge(f"h{number}", number // hosts_per_leaf, bandwidth=host_bandwidth)
    return net
