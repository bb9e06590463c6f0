# ruff: noqa: F821 (names of the reference)
"""To the nearest GPU that is left."""

TASK = "a0.best_ring"
EXPECT = {
    "status": "failed",
    "check": "slowest link",
    "cause": "",
}


def best_ring(topology):
    gpus = sorted(topology.gpus, key=lambda gpu: int(gpu[3:]))
    ring, left = gpus[:1], gpus[1:]
    while left:
        ring.append(max(left, key=lambda gpu: _nearness(topology.kind(ring[-1], gpu))))
        left.remove(ring[-1])
    return [int(gpu[3:]) for gpu in ring]
