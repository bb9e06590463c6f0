# ruff: noqa: F821 (names of the reference)
"""Takes x3 and x32 as they come."""

TASK = "a0.pcie_bandwidth"
EXPECT = {
    "status": "failed",
    "check": "refuses",
    "cause": "not checked",
}


def pcie_bandwidth(generation, lanes):
    _known("generation", generation, tuple(_PCIE))
    transfers, coding = _PCIE[generation]
    return lanes * transfers * 1e9 * coding / 8
