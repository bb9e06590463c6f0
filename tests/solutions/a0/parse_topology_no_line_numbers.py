# ruff: noqa: F821 (names of the reference)
"""Says that it is wrong, not where."""

TASK = "a0.parse_topology"
EXPECT = {
    "status": "failed",
    "check": "names the line",
    "cause": "must name what was wrong",
}


_old = parse_topology


def parse_topology(text):
    try:
        return _old(text)
    except ValueError:
        raise ValueError("not a topology matrix") from None
