# ruff: noqa: F821 (names of the reference)
"""A side of 2 has a link twice as fast."""

TASK = "a0.torus"
EXPECT = {
    "status": "failed",
    "check": "bandwidth",
    "cause": "side of 2",
}


_old = torus


def torus(sides, bandwidth):
    net = _old(sides, bandwidth)
    for a, b, edge in net.edges(data=True):
        axis = [x != y for x, y in zip(a, b)].index(True)
        edge["bandwidth"] = bandwidth * (2 if sides[axis] == 2 else 1)
    return net
