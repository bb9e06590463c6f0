# ruff: noqa: F821 (names of the reference)
"""Every bit on the wire counts as data."""

TASK = "a0.pcie_bandwidth"
EXPECT = {
    "status": "failed",
    "check": "8b/10b",
    "cause": "coding is left out",
}


def pcie_bandwidth(generation, lanes):
    _known("generation", generation, tuple(_PCIE))
    _known("lanes", lanes, _LANES)
    return lanes * _PCIE[generation][0] * 1e9 / 8
