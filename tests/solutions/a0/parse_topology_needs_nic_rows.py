# ruff: noqa: F821 (names of the reference)
"""As many rows as columns, or it was cut off."""

TASK = "a0.parse_topology"
EXPECT = {
    "status": "error",
    "check": "reads NICs",
    "cause": "only have columns",
}


_old = parse_topology


def parse_topology(text):
    found = _old(text)
    for nic in found.nics:
        if not re.search(rf"^{nic}\b", text, re.MULTILINE):
            raise ValueError(f"line 1: no row for {nic}")
    return found
