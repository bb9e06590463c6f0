# ruff: noqa: F821 (names of the reference)
"""Cells are parted by tabs, always."""

TASK = "a0.parse_topology"
EXPECT = {
    "status": "error",
    "check": "finds the GPUs",
    "cause": "columns of blanks",
}


_old = parse_topology


def parse_topology(text):
    rows = [line for line in text.split("\n") if line.startswith("GPU")]
    if rows and all("\t" not in row for row in rows):
        raise KeyError("GPU0")
    return _old(text)
