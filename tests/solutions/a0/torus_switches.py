# ruff: noqa: F821 (names of the reference)
"""Every host with a switch of its own."""

TASK = "a0.torus"
EXPECT = {
    "status": "failed",
    "check": "right hosts",
    "cause": "",
}


_old = torus


def torus(sides, bandwidth):
    net = _old(sides, bandwidth)
    for node in list(net):
        net.nodes[node]["kind"] = "switch"
        net.add_node(("host", node), kind="host")
        net.add_edge(("host", node), node, bandwidth=bandwidth)
    return net
