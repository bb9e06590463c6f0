"""Networks as graphs: the three-tier tree, leaf and spine, the fat-tree, the torus.

Every node carries `kind`, "host" or "switch"; every edge carries `bandwidth` in bytes/s of one
direction. How nodes are named is free.

Sources: Al-Fares, Loukissas and Vahdat, "A scalable, commodity data center network architecture",
2008; Greenberg et al., "VL2", 2009; Dally and Towles, "Principles and practices of
interconnection networks", 2004 (torus); Leiserson, "Fat-trees", 1985.
"""

from __future__ import annotations

# BEGIN SOLUTION
import itertools

# END SOLUTION
from collections.abc import Hashable, Sequence
from typing import Any

import networkx as nx

# BEGIN SOLUTION
Name = tuple[Hashable, ...]


def _expect(arguments: dict[str, float]) -> None:
    """Counts of at least 1, bandwidths above 0."""
    for name, value in arguments.items():
        if name.endswith("bandwidth"):
            if not value > 0:
                raise ValueError(f"{name}={value!r}: expected bytes/s above 0")
        elif value < 1 or value != int(value):
            raise ValueError(f"{name}={value!r}: expected a whole number of at least 1")


def _switches(graph: Any, name: str, count: int, *place: Hashable) -> list[Name]:
    nodes: list[Name] = [(name, *place, number) for number in range(count)]
    graph.add_nodes_from(nodes, kind="switch")
    return nodes


def _hosts_below(graph: Any, switch: Name, count: int, bandwidth: float) -> None:
    for number in range(count):
        host = ("host", *switch[1:], number)
        graph.add_node(host, kind="host")
        graph.add_edge(host, switch, bandwidth=bandwidth)


# END SOLUTION


def three_tier_tree(
    cores: int,
    aggregations: int,
    accesses_per_aggregation: int,
    hosts_per_access: int,
    bandwidth: float,
) -> nx.Graph:
    """The classical data-centre tree: core, aggregation and access switches, then hosts.

    Every aggregation switch is linked to every core switch, every access switch to its one
    aggregation switch, every host to its one access switch. All links have the same bandwidth, so
    access switches are oversubscribed `hosts_per_access` : 1.

    Args:
        cores, aggregations: switches of these two tiers.
        accesses_per_aggregation: access switches below each aggregation switch.
        hosts_per_access: hosts below each access switch.
        bandwidth: bytes/s of every link.

    Raises:
        ValueError: a count below 1 or a bandwidth that is not above 0; the message names it.

    Source: Al-Fares et al. 2008, section 2.1 (the design they replace).
    """
    # BEGIN SOLUTION
    _expect(
        {
            "cores": cores,
            "aggregations": aggregations,
            "accesses_per_aggregation": accesses_per_aggregation,
            "hosts_per_access": hosts_per_access,
            "bandwidth": bandwidth,
        }
    )
    graph = nx.Graph()
    tops = _switches(graph, "core", cores)
    for middle in _switches(graph, "aggregation", aggregations):
        graph.add_edges_from(((top, middle) for top in tops), bandwidth=bandwidth)
        for access in _switches(graph, "access", accesses_per_aggregation, *middle[1:]):
            graph.add_edge(middle, access, bandwidth=bandwidth)
            _hosts_below(graph, access, hosts_per_access, bandwidth)
    return graph
    # END SOLUTION


def leaf_spine(
    leaves: int,
    spines: int,
    hosts_per_leaf: int,
    host_bandwidth: float,
    uplink_bandwidth: float,
) -> nx.Graph:
    """Two tiers: every leaf switch is linked to every spine switch, every host to its leaf.

    A leaf is oversubscribed hosts_per_leaf × host_bandwidth : spines × uplink_bandwidth.

    Args:
        leaves, spines: switches of the two tiers.
        hosts_per_leaf: hosts below each leaf.
        host_bandwidth: bytes/s between host and leaf.
        uplink_bandwidth: bytes/s between leaf and spine.

    Raises:
        ValueError: a count below 1 or a bandwidth that is not above 0; the message names it.

    Source: Greenberg et al. 2009; Alizadeh and Edsall, "On the data path performance of leaf-spine
    datacenter fabrics", 2013.
    """
    # BEGIN SOLUTION
    _expect(
        {
            "leaves": leaves,
            "spines": spines,
            "hosts_per_leaf": hosts_per_leaf,
            "host_bandwidth": host_bandwidth,
            "uplink_bandwidth": uplink_bandwidth,
        }
    )
    graph = nx.Graph()
    tops = _switches(graph, "spine", spines)
    for leaf in _switches(graph, "leaf", leaves):
        graph.add_edges_from(((leaf, top) for top in tops), bandwidth=uplink_bandwidth)
        _hosts_below(graph, leaf, hosts_per_leaf, host_bandwidth)
    return graph
    # END SOLUTION


def fat_tree(k: int, bandwidth: float) -> nx.Graph:
    """The fat-tree of k-port switches: k pods, k³/4 hosts, 5k²/4 switches, full bisection.

    A pod has k/2 edge and k/2 aggregation switches, each linked to each of the other kind; an edge
    switch has k/2 hosts. There are (k/2)² core switches, each linked to one aggregation switch of
    every pod: aggregation switch i of a pod to the core switches i·k/2 … i·k/2 + k/2 − 1.

    Args:
        k: ports of a switch, even, at least 2.
        bandwidth: bytes/s of every link.

    Raises:
        ValueError: k odd or below 2, or a bandwidth that is not above 0; the message names it.

    Source: Al-Fares et al. 2008, section 3.
    """
    # BEGIN SOLUTION
    _expect({"k": k, "bandwidth": bandwidth})
    if k % 2:
        raise ValueError(f"k={k!r}: expected an even number of ports")
    graph = nx.Graph()
    half = k // 2
    cores = _switches(graph, "core", half * half)
    for pod in range(k):
        edges = _switches(graph, "edge", half, pod)
        for number, middle in enumerate(_switches(graph, "aggregation", half, pod)):
            own = cores[number * half : (number + 1) * half]
            graph.add_edges_from(((middle, core) for core in own), bandwidth=bandwidth)
            graph.add_edges_from(((middle, edge) for edge in edges), bandwidth=bandwidth)
        for edge in edges:
            _hosts_below(graph, edge, half, bandwidth)
    return graph
    # END SOLUTION


def torus(sides: Sequence[int], bandwidth: float) -> nx.Graph:
    """The torus d₁ × … × d_D: hosts only, each linked to its neighbours in every dimension.

    Lines are closed to rings. A side of 2 has one link between its two hosts, not two; a side of 1
    has none.

    Args:
        sides: hosts in each dimension, at least one number, each at least 1.
        bandwidth: bytes/s of every link.

    Raises:
        ValueError: no sides, a side below 1, or a bandwidth that is not above 0; the message names
            it.

    Source: Dally and Towles 2004, chapter 5.
    """
    # BEGIN SOLUTION
    sides = tuple(sides)
    if not sides:
        raise ValueError(f"sides={sides!r}: expected at least one side")
    _expect({f"sides[{axis}]": side for axis, side in enumerate(sides)} | {"bandwidth": bandwidth})
    graph = nx.Graph()
    graph.add_nodes_from(itertools.product(*map(range, sides)), kind="host")
    for place in list(graph):
        for axis, side in enumerate(sides):
            neighbour = (*place[:axis], (place[axis] + 1) % side, *place[axis + 1 :])
            if neighbour != place:
                graph.add_edge(place, neighbour, bandwidth=bandwidth)
    return graph
    # END SOLUTION
