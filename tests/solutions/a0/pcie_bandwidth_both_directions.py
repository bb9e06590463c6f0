# ruff: noqa: F821 (names of the reference)
"""As advertisements count."""

TASK = "a0.pcie_bandwidth"
EXPECT = {
    "status": "failed",
    "check": "128b/130b",
    "cause": "both directions",
}


_old = pcie_bandwidth


def pcie_bandwidth(generation, lanes):
    return 2 * _old(generation, lanes)
