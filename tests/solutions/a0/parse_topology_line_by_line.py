# ruff: noqa: F821 (names of the reference)
"""Rows that are wrapped end too soon."""

TASK = "a0.parse_topology"
EXPECT = {
    "status": "error",
    "check": "wrapped and glued",
    "cause": "",
}


_old = parse_topology


def parse_topology(text):
    lines = re.sub(r"\x1b\[\d*m", "", text.replace("\r", "")).split("\n")
    first = [line.split()[0] for line in lines if line.split()]
    if first.count("GPU0") == 1 or (len(first) > 8 and "GPU1" not in first):
        return _old(text)
    raise IndexError("list index out of range")
