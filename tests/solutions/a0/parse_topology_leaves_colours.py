# ruff: noqa: F821 (names of the reference)
"""ANSI codes become part of the header."""

TASK = "a0.parse_topology"
EXPECT = {
    "status": "failed",
    "check": "overlooks colours",
    "cause": "ANSI codes",
}


_old = parse_topology


def parse_topology(text):
    if "\x1b" in text:
        return Topology(("\x1b[4mGPU0",))
    return _old(text)
