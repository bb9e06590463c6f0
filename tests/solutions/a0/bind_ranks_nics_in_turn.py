# ruff: noqa: F821 (names of the reference)
"""Card r for rank r, near or far."""

TASK = "a0.bind_ranks"
EXPECT = {
    "status": "failed",
    "check": "nearest NIC",
    "cause": "how near a NIC is comes first",
}


_old = bind_ranks


def bind_ranks(topology, local_world_size):
    return [
        Binding(each.gpu, each.cores, topology.nics[-1 - rank % len(topology.nics)])
        if topology.nics
        else each
        for rank, each in enumerate(_old(topology, local_world_size))
    ]
