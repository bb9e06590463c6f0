# ruff: noqa: F821 (names of the reference)
"""A matrix that was cut off is a smaller one."""

TASK = "a0.parse_topology"
EXPECT = {
    "status": "failed",
    "check": "names the line",
    "cause": "not checked",
}


_old = parse_topology


def parse_topology(text):
    try:
        return _old(text)
    except ValueError:
        return Topology(())
