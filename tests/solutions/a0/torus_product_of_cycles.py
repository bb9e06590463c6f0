# ruff: noqa: F821 (names of the reference)
"""Right: the product of rings, with flat names."""

TASK = "a0.torus"
EXPECT = "passed"


def torus(sides, bandwidth):
    if not sides or min(sides) < 1 or not bandwidth > 0:
        raise ValueError(f"sides={sides}, bandwidth={bandwidth}")
    net = nx.path_graph(1)
    for side in sides:
        ring = nx.cycle_graph(side) if side > 2 else nx.path_graph(side)
        net = nx.convert_node_labels_to_integers(nx.cartesian_product(net, ring))
    nx.set_node_attributes(net, "host", "kind")
    nx.set_edge_attributes(net, bandwidth, "bandwidth")
    return net
