# ruff: noqa: F821 (names of the reference)
"""The least loaded of the nearest cards, and no looking ahead."""

TASK = "a0.bind_ranks"
EXPECT = {
    "status": "failed",
    "check": "spreads the ranks",
    "cause": "does not leave a NIC",
}


_old = bind_ranks


def bind_ranks(topology, local_world_size):
    load = dict.fromkeys(topology.nics, 0)
    found = []
    for each in _old(topology, local_world_size):
        kinds = {nic: _nearness(topology.kind(each.gpu, nic)) for nic in topology.nics}
        near = [nic for nic in topology.nics if kinds[nic] == max(kinds.values())]
        nic = min(near, key=lambda name: load[name], default=None)
        if nic is not None:
            load[nic] += 1
        found.append(Binding(each.gpu, each.cores, nic))
    return found
