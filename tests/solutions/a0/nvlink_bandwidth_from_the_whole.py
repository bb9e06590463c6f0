"""Right: divides the whole."""

TASK = "a0.nvlink_bandwidth"
EXPECT = "passed"


def nvlink_bandwidth(generation, links=None):
    whole = {1: 80, 2: 150, 3: 300, 4: 450, 5: 900}.get(generation)
    if whole is None:
        raise ValueError(f"generation {generation} is not known")
    full = (4, 6, 12, 18, 18)[generation - 1]
    count = full if links is None else links
    if count not in range(1, full + 1):
        raise ValueError(f"{count} links of {full}")
    return float(whole * 10**9 // full * count)
