# ruff: noqa: F821 (names of the reference)
"""A mesh: nothing closes the rings."""

TASK = "a0.torus"
EXPECT = {
    "status": "failed",
    "check": "right hosts",
    "cause": "",
}


_old = torus


def torus(sides, bandwidth):
    net = _old(sides, bandwidth)
    for a, b in list(net.edges):
        if any(abs(x - y) > 1 for x, y in zip(a, b)):
            net.remove_edge(a, b)
    return net
