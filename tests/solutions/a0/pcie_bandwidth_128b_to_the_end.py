# ruff: noqa: F821 (names of the reference)
"""128b/130b in generations 6 and 7, too."""

TASK = "a0.pcie_bandwidth"
EXPECT = {
    "status": "failed",
    "check": "FLIT",
    "cause": "128b/130b belongs to generations 3 to 5",
}


_old = pcie_bandwidth


def pcie_bandwidth(generation, lanes):
    right = _old(generation, lanes)
    return right * 256 / 242 * 128 / 130 if generation > 5 else right
