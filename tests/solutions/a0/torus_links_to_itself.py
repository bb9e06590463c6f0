# ruff: noqa: F821 (names of the reference)
"""A side of 1 links a host to itself."""

TASK = "a0.torus"
EXPECT = {
    "status": "failed",
    "check": "right hosts",
    "cause": "side of 1",
}


_old = torus


def torus(sides, bandwidth):
    net = _old(sides, bandwidth)
    if 1 in sides:
        net.add_edges_from(((node, node) for node in list(net)), bandwidth=bandwidth)
    return net
