"""Right: from generation to generation, in integers."""

TASK = "a0.pcie_bandwidth"
EXPECT = "passed"


def pcie_bandwidth(generation, lanes):
    if generation not in range(1, 8):
        raise ValueError(f"there is no generation {generation}")
    if lanes not in {1, 2, 4, 8, 16}:
        raise ValueError(f"there is no x{lanes}")
    lane = 2_500_000_000 if generation < 3 else 8_000_000_000
    lane <<= generation - 1 if generation < 3 else generation - 3
    good, all_ = ((8, 10), (128, 130), (242, 256))[(generation > 2) + (generation > 5)]
    return lanes * lane * good / (all_ * 8)
