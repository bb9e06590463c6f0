"""The reference's hierarchical all-reduce, run on simulated ranks, timed on clusters with names."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from grader.fabric import simulate
from grader.fabric.cluster import Cluster
from grader.fabric.presets import one_card, preset
from grader.fabric.trace import Trace
from reference.a2_ring_all_reduce.hierarchical import hierarchical_all_reduce
from reference.a2_ring_all_reduce.ring import ring_all_reduce

ELEMENTS = 1 << 26  # fp32, 256 MiB, on the meta device


def traced(nodes: int, per_node: int, hierarchical: bool) -> Trace:
    world = nodes * per_node

    def body(rank: int, _: Any) -> None:
        inside = [range(n * per_node, (n + 1) * per_node) for n in range(nodes)]
        intra = [dist.new_group(list(ranks)) for ranks in inside]
        inter = [dist.new_group(list(range(d, world, per_node))) for d in range(per_node)]
        tensor = torch.empty(ELEMENTS, device="meta")
        if hierarchical:
            node, place = divmod(rank, per_node)
            hierarchical_all_reduce(tensor, dist.ReduceOp.SUM, intra[node], inter[place])
        else:
            ring_all_reduce(tensor, dist.ReduceOp.SUM)

    result = simulate(body, world, time_limit=60.0)
    assert not result.findings and not result.errors
    return Trace(result.record)


def formula(cluster: Cluster, nodes: int, per_node: int, share: int = 1) -> float:
    """Two levels; latency between nodes as on the path from node to node at the same place."""
    nbytes, g, k = 4 * ELEMENTS, per_node, nodes
    far = max(cluster.path(0, n * g).latency for n in range(1, nodes))
    inside = 2 * (g - 1) * (cluster.intra.latency + nbytes / g / cluster.intra.bandwidth)
    return inside + 2 * (k - 1) * (far + share * nbytes / g / k / cluster.inter.bandwidth)


def test_on_two_nodes_it_takes_its_formula_and_wins_where_the_formula_says() -> None:
    levels, ring = traced(2, 8, hierarchical=True), traced(2, 8, hierarchical=False)
    for name in ("dgx-a100*2", "dgx-h100*2", "h800-v3*2"):
        for cluster, share in ((preset(name), 1), (one_card(preset(name)), 8)):
            free = replace(cluster, flops=math.inf, memory_bandwidth=math.inf)
            took = levels.on(free).makespan
            assert took == pytest.approx(formula(cluster, 2, 8, share), rel=0.01)
            assert took < ring.on(free).makespan


def test_it_loses_where_the_inside_is_no_faster_than_the_card() -> None:
    """With one card the hierarchy saves (g−1)/g · 2n (β'/k − β): nothing on staged PCIe."""
    cluster = replace(preset("pcie-4090x8*2"), flops=math.inf, memory_bandwidth=math.inf)
    layout = cluster.layout(range(16))
    assert layout.inner.bandwidth < cluster.nodes * cluster.inter.bandwidth
    levels = traced(2, 8, hierarchical=True).on(cluster).makespan
    assert levels > traced(2, 8, hierarchical=False).on(cluster).makespan


@pytest.mark.soak
def test_1024_ranks_on_a_fat_tree_take_the_formula() -> None:
    """Prints nothing and judges no host time; `pytest --durations` shows it."""
    cluster = preset("dgx-h100", 1024)
    took = traced(128, 8, hierarchical=True).on(cluster).makespan
    assert took == pytest.approx(formula(cluster, 128, 8), rel=0.001)
