# ruff: noqa: F821 (names of the reference)
"""All orders: right for 8 GPUs, never ends for 16."""

TASK = "a0.best_ring"
EXPECT = {
    "status": "timeout",
    "check": "16 GPUs",
    "cause": "15! for 16 GPUs",
}


def best_ring(topology):
    first, *others = sorted(int(gpu[3:]) for gpu in topology.gpus)
    best = None
    for order in itertools.permutations(others):
        ring = (first, *order)
        speeds = [
            _nearness(topology.kind(f"GPU{a}", f"GPU{b}")) if a != b else 0
            for a, b in zip(ring, (*order, first))
        ]
        worth = (-min(speeds), speeds.count(min(speeds)), ring)
        best = worth if best is None else min(best, worth)
    return list(best[2])
