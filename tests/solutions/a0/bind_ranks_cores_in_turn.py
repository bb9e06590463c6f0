# ruff: noqa: F821 (names of the reference)
"""Right: deals the cores out like cards, and asks for a flow of NICs."""

import networkx as nx

TASK = "a0.bind_ranks"
EXPECT = "passed"


def bind_ranks(topology, local_world_size):
    count = len(topology.gpus)
    if not 0 < local_world_size <= count:
        raise ValueError(f"{local_world_size} ranks, {count} GPUs")
    gpus = topology.gpus[:local_world_size]
    order = ["PIX", "PXB", "PHB", "NODE", "SYS"]
    nic_of = dict.fromkeys(gpus)
    for limit in range(1, count + 1) if topology.nics else ():
        graph = nx.DiGraph()
        for gpu in gpus:
            graph.add_edge("s", gpu, capacity=1)
            best = min(order.index(topology.links[gpu, nic]) for nic in topology.nics)
            for nic in topology.nics:
                if topology.links[gpu, nic] == order[best]:
                    graph.add_edge(gpu, nic, capacity=1)
                    graph.add_edge(nic, "t", capacity=limit)
        value, flow = nx.maximum_flow(graph, "s", "t")
        if value == len(gpus):
            nic_of = {gpu: max(flow[gpu], key=flow[gpu].get) for gpu in gpus}
            break
    bindings = []
    for gpu in gpus:
        cores = topology.cpu_affinity[gpu]
        mates = [other for other in gpus if topology.cpu_affinity[other] == cores]
        place = mates.index(gpu)
        mine = cores[place :: len(mates)] or cores[place % max(len(cores), 1) :][:1]
        bindings.append(Binding(gpu, mine, nic_of[gpu]))
    return bindings
