# ruff: noqa: F821 (names of the reference)
"""The first of the nearest cards."""

TASK = "a0.bind_ranks"
EXPECT = {
    "status": "failed",
    "check": "spreads the ranks",
    "cause": "always taken",
}


_old = bind_ranks


def bind_ranks(topology, local_world_size):
    def nearest(gpu):
        return max(topology.nics, key=lambda nic: _nearness(topology.kind(gpu, nic)), default=None)

    return [
        Binding(each.gpu, each.cores, nearest(each.gpu))
        for each in _old(topology, local_world_size)
    ]
