# ruff: noqa: F821 (names of the reference)
"""Ranks with fewer near cards choose first, the least loaded; nobody is ever moved aside."""

TASK = "a0.bind_ranks"
EXPECT = {
    "status": "failed",
    "check": "spreads the ranks",
    "cause": "moved aside",
}


_old = bind_ranks


def bind_ranks(topology, local_world_size):
    old = _old(topology, local_world_size)
    near = {}
    for each in old:
        kinds = {nic: _nearness(topology.kind(each.gpu, nic)) for nic in topology.nics}
        near[each.gpu] = [nic for nic in topology.nics if kinds[nic] == max(kinds.values())]
    load = dict.fromkeys(topology.nics, 0)
    chosen = {}
    for gpu in sorted(near, key=lambda gpu: len(near[gpu])):
        chosen[gpu] = min(near[gpu], key=lambda name: load[name], default=None)
        if chosen[gpu] is not None:
            load[chosen[gpu]] += 1
    return [Binding(each.gpu, each.cores, chosen[each.gpu]) for each in old]
