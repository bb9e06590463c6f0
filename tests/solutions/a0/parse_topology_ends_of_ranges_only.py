# ruff: noqa: F821 (names of the reference)
"""0-23,48-71 are four cores."""

TASK = "a0.parse_topology"
EXPECT = {
    "status": "failed",
    "check": "reads CPU and NUMA",
    "cause": "only the ends of ranges",
}


def _numbers(cell):
    if cell == "N/A":
        return ()
    return tuple(sorted({int(number) for number in re.findall(r"\d+", cell)}))
