# ruff: noqa: F821 (names of the reference)
"""The best path, not the best ring."""

TASK = "a0.best_ring"
EXPECT = {
    "status": "failed",
    "check": "slowest link",
    "cause": "that link counts, too",
}


def best_ring(topology):
    gpus = sorted(topology.gpus, key=lambda gpu: int(gpu[3:]))
    if len(gpus) > 8:
        return [int(gpu[3:]) for gpu in gpus]

    def worth(path):
        speeds = [_nearness(topology.kind(a, b)) for a, b in itertools.pairwise(path)]
        return -min(speeds, default=0), speeds.count(min(speeds, default=0)), path

    paths = ((gpus[0], *rest) for rest in itertools.permutations(gpus[1:]))
    return [int(gpu[3:]) for gpu in min(paths, key=worth)]
