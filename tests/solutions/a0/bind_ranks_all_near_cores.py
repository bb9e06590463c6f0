# ruff: noqa: F821 (names of the reference)
"""Every rank may run on all cores near its GPU."""

TASK = "a0.bind_ranks"
EXPECT = {
    "status": "failed",
    "check": "shares the cores",
    "cause": "instead of its share",
}


_old = bind_ranks


def bind_ranks(topology, local_world_size):
    return [
        Binding(each.gpu, topology.cpu_affinity[each.gpu], each.nic)
        for each in _old(topology, local_world_size)
    ]
