"""The checks of assignment 0 about networks."""

from __future__ import annotations

import random
from collections import Counter

import networkx as nx

from grader.checks import a0_networks as networks
from grader.checks.a0_cases import Case, refusals, run
from grader.checks.a0_networks import graph_case
from grader.checks.framework import check
from grader.checks.world import SimulatedCluster as Cluster

GB = 10**9

TREES = [(2, 4, 2, 3), (1, 2, 3, 2), (4, 2, 1, 5), (3, 1, 1, 2)]


def tree_cases(measure: str) -> list[Case]:
    """three_tier_tree, measured in one way."""
    rate, cases = 5 * GB, []
    for cores, aggs, accesses, leaves in TREES:
        hosts = aggs * accesses * leaves
        edges = hosts + aggs * accesses + cores * aggs
        far = 6 if aggs > 1 else (4 if accesses > 1 else 2)
        judges = {
            "counts": [networks.counts(hosts, cores + aggs + aggs * accesses, edges)],
            "shape": [
                networks.degrees("host", Counter({1: hosts})),
                networks.degrees(
                    "switch",
                    Counter({aggs: cores})
                    + Counter({cores + accesses: aggs})
                    + Counter({leaves + 1: aggs * accesses}),
                ),
                networks.diameter(far),
                networks.edge_oversubscription(float(leaves)),
            ],
            "bandwidth": [networks.rates(Counter({rate: edges}))],
        }
        arguments = {
            "cores": cores, "aggregations": aggs, "accesses_per_aggregation": accesses,
            "hosts_per_access": leaves, "bandwidth": rate,
        }  # fmt: skip
        label = f"{cores} core switches, {aggs} aggregation switches, {accesses} × {leaves}"
        cases.append(graph_case(label, arguments, *judges[measure]))
    return cases


@check("a0.three_tier_tree", 1.5, "has the right hosts, switches and links")
def test_tree_counts(cluster: Cluster) -> None:
    run(cluster, "a0.three_tier_tree", tree_cases("counts"))


@check("a0.three_tier_tree", 1.5, "links every tier as it should")
def test_tree_shape(cluster: Cluster) -> None:
    run(cluster, "a0.three_tier_tree", tree_cases("shape"))


@check("a0.three_tier_tree", 0.5, "gives every link its bandwidth")
def test_tree_bandwidth(cluster: Cluster) -> None:
    run(cluster, "a0.three_tier_tree", tree_cases("bandwidth"))


@check("a0.three_tier_tree", 0.5, "refuses wrong numbers")
def test_tree_refusals(cluster: Cluster) -> None:
    right = tree_cases("counts")[0].arguments
    names = ("cores", "aggregations", "accesses_per_aggregation", "hosts_per_access")
    wrong = refusals(**{name: (right, [0, -2]) for name in names}, bandwidth=(right, [0]))
    run(cluster, "a0.three_tier_tree", wrong)


LEAVES = [(4, 2, 3, 10 * GB, 40 * GB), (2, 1, 4, 25 * GB, 25 * GB), (6, 3, 3, 5 * GB, 5 * GB)]


def leaf_cases(measure: str, dice: random.Random) -> list[Case]:
    """leaf_spine, measured in one way."""
    cases = []
    for leaves, spines, below, down, up in LEAVES:
        hosts, edges = leaves * below, leaves * below + leaves * spines
        through = min(spines * up, below * down) * (leaves // 2)
        judges = {
            "counts": [networks.counts(hosts, leaves + spines, edges)],
            "shape": [
                networks.degrees("host", Counter({1: hosts})),
                networks.diameter(4),
                networks.bisection(2, through, dice),
            ],
            "bandwidth": [
                networks.rates(Counter({down: hosts}) + Counter({up: leaves * spines})),
                networks.edge_oversubscription(below * down / (spines * up)),
            ],
        }
        arguments = {
            "leaves": leaves, "spines": spines, "hosts_per_leaf": below,
            "host_bandwidth": down, "uplink_bandwidth": up,
        }  # fmt: skip
        label = f"{leaves} leaves, {spines} spines, {below} hosts each"
        cases.append(graph_case(label, arguments, *judges[measure]))
    return cases


@check("a0.leaf_spine", 1.5, "has the right hosts, switches and links")
def test_leaf_counts(cluster: Cluster, dice: random.Random) -> None:
    run(cluster, "a0.leaf_spine", leaf_cases("counts", dice))


@check("a0.leaf_spine", 1.5, "has the right diameter and bisection")
def test_leaf_shape(cluster: Cluster, dice: random.Random) -> None:
    run(cluster, "a0.leaf_spine", leaf_cases("shape", dice))


@check("a0.leaf_spine", 0.5, "is oversubscribed as told")
def test_leaf_bandwidth(cluster: Cluster, dice: random.Random) -> None:
    run(cluster, "a0.leaf_spine", leaf_cases("bandwidth", dice))


@check("a0.leaf_spine", 0.5, "refuses wrong numbers")
def test_leaf_refusals(cluster: Cluster, dice: random.Random) -> None:
    right = leaf_cases("counts", dice)[0].arguments
    names = ("leaves", "spines", "hosts_per_leaf", "host_bandwidth", "uplink_bandwidth")
    run(cluster, "a0.leaf_spine", refusals(**{name: (right, [0, -1]) for name in names}))


def fat_cases(measure: str, dice: random.Random) -> list[Case]:
    """fat_tree, measured in one way."""
    rate, cases = 12.5e9, []
    for k in (2, 4, 6, 8):
        hosts, switches, edges = k**3 // 4, 5 * k**2 // 4, 3 * k**3 // 4
        judges = {
            "counts": [networks.counts(hosts, switches, edges)],
            "shape": [
                networks.degrees("host", Counter({1: hosts})),
                networks.degrees("switch", Counter({k: switches})),
                networks.diameter(6),
                networks.edge_oversubscription(1.0),
                networks.bisection(4, k**3 / 8 * rate, dice, full=k <= 6),
            ],
            "bandwidth": [networks.rates(Counter({rate: edges}))],
        }
        cases.append(graph_case(f"k={k}", {"k": k, "bandwidth": rate}, *judges[measure]))
    return cases


@check("a0.fat_tree", 1, "has k³/4 hosts, 5k²/4 switches and 3k³/4 links")
def test_fat_counts(cluster: Cluster, dice: random.Random) -> None:
    run(cluster, "a0.fat_tree", fat_cases("counts", dice))


@check("a0.fat_tree", 2, "has diameter 6 and full bisection")
def test_fat_shape(cluster: Cluster, dice: random.Random) -> None:
    run(cluster, "a0.fat_tree", fat_cases("shape", dice))


@check("a0.fat_tree", 0.5, "gives every link its bandwidth")
def test_fat_bandwidth(cluster: Cluster, dice: random.Random) -> None:
    run(cluster, "a0.fat_tree", fat_cases("bandwidth", dice))


@check("a0.fat_tree", 0.5, "refuses an odd k, and other wrong numbers")
def test_fat_refusals(cluster: Cluster) -> None:
    right = {"k": 4, "bandwidth": 1e9}
    run(cluster, "a0.fat_tree", refusals(k=(right, [3, 7, 0, -2]), bandwidth=(right, [0])))


TORI = [(5,), (4, 4), (3, 5), (8, 8), (2,), (2, 2), (2, 2, 2), (4, 2, 3), (1,), (4, 1), (1, 1, 3)]


def torus_cases(measure: str) -> list[Case]:
    """torus, measured in one way."""
    rate, cases = 3 * GB, []
    for sides in TORI:
        lattice = nx.grid_graph(list(sides), periodic=[side > 2 for side in sides])
        hosts, edges = lattice.number_of_nodes(), lattice.number_of_edges()
        judges = {
            "counts": [networks.counts(hosts, 0, edges)],
            "shape": [
                networks.diameter(sum(side // 2 for side in sides)),
                networks.same_as(lattice),
            ],
            "bandwidth": [networks.rates(Counter({rate: edges}))],
        }
        if measure == "bandwidth" and not edges:
            continue
        traits = [f"side of {side}" for side in (1, 2) if side in sides]
        arguments = {"sides": list(sides), "bandwidth": rate}
        label = "×".join(map(str, sides))
        cases.append(graph_case(label, arguments, *judges[measure], traits=traits))
    return cases


@check("a0.torus", 1.5, "has the right hosts and links")
def test_torus_counts(cluster: Cluster) -> None:
    run(cluster, "a0.torus", torus_cases("counts"))


@check("a0.torus", 1.5, "links neighbours in every dimension")
def test_torus_shape(cluster: Cluster) -> None:
    run(cluster, "a0.torus", torus_cases("shape"))


@check("a0.torus", 0.5, "gives every link its bandwidth")
def test_torus_bandwidth(cluster: Cluster) -> None:
    run(cluster, "a0.torus", torus_cases("bandwidth"))


@check("a0.torus", 0.5, "refuses wrong numbers")
def test_torus_refusals(cluster: Cluster) -> None:
    right = {"sides": [4, 4], "bandwidth": 1e9}
    cases = [
        Case("sides=[4, 0]", right | {"sides": [4, 0]}, refused=[r"0"]),
        Case("sides=[-3]", right | {"sides": [-3]}, refused=[r"-3"]),
        *refusals(bandwidth=(right, [0])),
    ]
    run(cluster, "a0.torus", cases)
