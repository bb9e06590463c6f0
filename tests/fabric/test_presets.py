"""The clusters with names: properties, formulas, published measurements, routes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.fabric.clock import replay
from grader.fabric.clock_collectives import collective_seconds
from grader.fabric.cluster import Cluster, LinkSpec, two_level
from grader.fabric.presets import PRESETS, one_card, preset
from grader.fabric.topology import Network
from tests.fabric import played_records as played
from tests.fabric import test_clock_properties as properties
from tests.fabric.played_records import Script

GIB = 1 << 30
# Ranks that reach over two nodes, and the last of which leaves a node half full.
RANKS = {"uniform": 5, "gb200-nvl72": 75}
ALL = [
    properties.test_no_link_beats_its_rate,
    properties.test_nothing_happens_before_its_cause,
    properties.test_host_order_and_numbers_do_not_matter,
    properties.test_shares_of_time_fit_into_the_run,
]


def cluster_of(name: str) -> Cluster:
    return preset(name, RANKS.get(name, 11))


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("law", ALL, ids=lambda law: law.__name__.removeprefix("test_"))
def test_laws_of_virtual_time_hold(name: str, law: object) -> None:
    ranks = RANKS.get(name, 11)
    cluster = cluster_of(name)
    inner = law.hypothesis.inner_test  # type: ignore[attr-defined]
    rest = [st.randoms(use_true_random=False)] if "host_order" in inner.__name__ else []

    @settings(max_examples=6 if ranks > 20 else 20, deadline=None, derandomize=True)
    @given(st.tuples(properties.steps(ranks), *rest))
    def holds(drawn: tuple[list[properties.Step], ...]) -> None:
        program, *others = drawn
        inner((program, ranks, cluster), *others)

    holds()


@pytest.mark.parametrize("name", PRESETS)
def test_every_pair_has_a_path_of_links_that_exist(name: str) -> None:
    cluster = cluster_of(name)
    links = len(cluster.link_bandwidths)
    assert len({cluster.link_name(link) for link in range(links)}) == links
    for src in range(cluster.devices):
        for dst in range(cluster.devices):
            path = cluster.path(src, dst)
            assert all(0 <= link < links for link in path.links)
            assert len(set(path.links)) == len(path.links)
            assert (path.latency > 0) == (src != dst)
            back = cluster.path(dst, src)
            assert (len(back.links), back.latency) == (len(path.links), path.latency)
    assert set(cluster.ports(range(cluster.devices))) <= set(range(links))


def test_whole_nodes_are_made_for_the_devices_that_are_asked_for() -> None:
    assert preset("dgx-h100", 9).nodes == 2
    assert preset("dgx-h100*4", 8).nodes == 4
    assert preset("dgx-h100*2", 100).nodes == 13
    assert (preset("uniform", 6).nodes, preset("uniform", 6).devices) == (1, 6)
    assert Cluster.preset("gb200-nvl72", 73).devices == 144
    for wrong in ("dgx-h200", "dgx-h100*", "dgx-h100*0"):
        with pytest.raises(ValueError, match=r"dgx-h"):
            preset(wrong)
    with pytest.raises(ValueError, match="at least 1 device, got 0"):
        preset("dgx-a100", 0)


# Published measurements -------------------------------------------------------------------------


def all_reduce(cluster: Cluster, ranks: int, nbytes: int) -> float:
    return collective_seconds("all_reduce", range(ranks), [nbytes] * ranks, cluster)


def test_a_ring_on_8_a100_takes_what_was_measured() -> None:
    s = Script(8)
    played.ring_all_reduce(s, range(8), 16 * GIB)
    seconds = replay(s.done(), preset("dgx-a100")).makespan
    assert seconds == pytest.approx(128.0e-3, rel=1e-3)
    assert 1.75 * 16 * GIB / seconds == pytest.approx(234.9e9, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "ranks", "nbytes", "measured", "off"),
    [
        ("dgx-a100", 8, 16 * GIB, 128.0e-3, 0.001),  # the size that was fitted
        ("gb200-nvl72", 72, 8 * GIB, 20.299e-3, 0.001),  # fitted
        # Predicted from one size. NCCL ramps up slowly at small ones, which α + nβ does not know.
        ("gb200-nvl72", 72, 4 * GIB, 10.094e-3, 0.01),
        ("gb200-nvl72", 72, 2 * GIB, 5.589e-3, 0.10),
        ("gb200-nvl72", 72, 1 * GIB, 3.1088e-3, 0.19),
        ("gb200-nvl72", 72, GIB // 2, 1.8067e-3, 0.30),
        # NVIDIA/nccl-tests #272, 8 × H200, same links and switches: busbw 475 GB/s at 4 GiB.
        ("dgx-h100", 8, 4 * GIB, 1.75 * 4 * GIB / 475e9, 0.02),
    ],
)
def test_all_reduce_predicts_published_times(
    name: str, ranks: int, nbytes: int, measured: float, off: float
) -> None:
    assert all_reduce(preset(name, ranks), ranks, nbytes) == pytest.approx(measured, rel=off)


# Hierarchies ------------------------------------------------------------------------------------


def flat(cluster: Cluster, ranks: int, nbytes: int) -> float:
    s = Script(ranks)
    played.ring_all_reduce(s, range(ranks), nbytes)
    return replay(s.done(), cluster).makespan


def hierarchical(cluster: Cluster, nodes: int, per_node: int, nbytes: int) -> float:
    s = Script(nodes * per_node)
    played.hierarchical_all_reduce(s, nodes, per_node, nbytes)
    return replay(s.done(), cluster).makespan


def with_channels(cluster: Cluster, nodes: int, per_node: int, nbytes: int) -> float:
    """One ring per card, each with its share of the vector, entering nodes at another device."""
    p = nodes * per_node
    s = Script(p)
    rings = [
        [
            node * per_node + (i + channel) % per_node
            for node in range(nodes)
            for i in range(per_node)
        ]
        for channel in range(per_node)
    ]
    for rank in range(p):
        places = [ring.index(rank) for ring in rings]
        nexts = [ring[(at + 1) % p] for ring, at in zip(rings, places, strict=True)]
        previous = [ring[at - 1] for ring, at in zip(rings, places, strict=True)]
        for _ in range(2 * (p - 1)):
            s.step(rank, [(dst, nbytes // p // per_node) for dst in nexts], previous)
    return replay(s.done(), cluster).makespan


def two_levels(cluster: Cluster, nodes: int, per_node: int, nbytes: int, share: int) -> float:
    """The two-level formula; `share` ranks use one card."""
    g, k = per_node, nodes
    inner, outer = cluster.intra, cluster.inter
    inside = 2 * (g - 1) * (inner.latency + nbytes / g / inner.bandwidth)
    return inside + 2 * (k - 1) * (outer.latency + share * nbytes / g / k / outer.bandwidth)


def test_with_one_card_the_hierarchy_wins_by_the_formulas_factor() -> None:
    cluster = one_card(preset("dgx-h100*4"))
    for nbytes, off in ((1 << 26, 0.015), (GIB, 0.002)):
        ring = 2 * 31 * (cluster.inter.latency + nbytes / 32 / cluster.inter.bandwidth)
        assert flat(cluster, 32, nbytes) == pytest.approx(ring, rel=1e-9)
        factor = ring / two_levels(cluster, 4, 8, nbytes, share=8)
        assert factor > 1.1
        won = flat(cluster, 32, nbytes) / hierarchical(cluster, 4, 8, nbytes)
        assert won == pytest.approx(factor, rel=off)


def test_with_a_card_per_device_a_flat_ring_with_channels_wins_where_it_should() -> None:
    cluster = preset("dgx-h100*4")
    hop = cluster.path(7, 8).latency  # from card to card across rails
    for nbytes in (1 << 20, GIB):
        levels = hierarchical(cluster, 4, 8, nbytes)
        assert levels == pytest.approx(two_levels(cluster, 4, 8, nbytes, share=1), rel=1e-9)
        channels = with_channels(cluster, 4, 8, nbytes)
        formula = 2 * 31 * (hop + nbytes / 32 / 8 / cluster.inter.bandwidth)
        assert channels == pytest.approx(formula, rel=0.02)
        # Where bytes cost more than latencies, all cards at once beat one level after the other.
        assert (channels < levels) == (nbytes == GIB)
        assert flat(cluster, 32, nbytes) > channels


def test_reduction_in_the_network_beats_rings_and_hierarchies() -> None:
    for cluster in (preset("dgx-h100*4"), one_card(preset("dgx-h100*4"))):
        adding = replace(cluster, network_adds=True)
        for nbytes in (1 << 20, 1 << 26, GIB):
            levels = hierarchical(cluster, 4, 8, nbytes)
            channels = with_channels(cluster, 4, 8, nbytes)
            assert all_reduce(adding, 32, nbytes) < min(levels, channels)


def test_whole_all_reduce_is_the_hierarchy_where_nothing_adds() -> None:
    for name in ("dgx-a100*3", "h800-v3*2"):
        cluster = preset(name)
        nbytes = 3 << 24
        expected = two_levels(cluster, cluster.nodes, 8, nbytes, share=1)
        assert all_reduce(cluster, cluster.devices, nbytes) == pytest.approx(expected)


def test_a_switch_that_adds_is_used_where_it_is_faster_than_a_ring() -> None:
    cluster = preset("dgx-h100")
    assert all_reduce(cluster, 2, GIB) == pytest.approx(2 * 3e-6 + GIB / 370e9)
    assert all_reduce(cluster, 8, GIB) == pytest.approx(2 * 3e-6 + GIB / 275e9)


# Routes -----------------------------------------------------------------------------------------


def test_staged_messages_share_the_memory_of_the_senders_cpu() -> None:
    cluster = preset("pcie-4090x8", 8)
    names = [cluster.link_name(link) for link in cluster.path(1, 6).links]
    assert names == [
        "device 1 out",
        "node 0 switch 0 up",
        "node 0 memory of CPU 0",
        "node 0 CPU 0 to CPU 1",
        "node 0 switch 3 down",
        "device 6 in",
    ]
    direct = replace(cluster, tree=replace(cluster.tree, staged=False))  # type: ignore[type-var]
    assert direct.path(0, 1).links == (0, 3)
    assert direct.path(0, 1).latency == pytest.approx(3e-6)
    assert cluster.path(0, 1).latency == pytest.approx(23.6e-6)

    def pairs(wide: Cluster, count: int) -> float:
        s = Script(8)
        for i in range(count):
            s.step(2 * i, [(2 * i + 1, 1 << 28)], [])
            s.step(2 * i + 1, [], [2 * i])
        return replay(s.done(), wide).makespan

    slow = replace(cluster, tree=replace(cluster.tree, memory=LinkSpec(0, 25e9)))  # type: ignore[type-var]
    assert pairs(direct, 2) == pytest.approx(pairs(direct, 1))
    assert pairs(slow, 2) == pytest.approx(2 * pairs(slow, 1), rel=0.01)
    assert pairs(slow, 4) == pytest.approx(pairs(slow, 2), rel=0.01)


def leafy(oversubscription: int) -> Cluster:
    """8 nodes of 1 device, 4 below a leaf; every spine has one link to each of two leaves."""
    link = LinkSpec(1e-6, 10e9)
    network = Network(4, 4 // oversubscription, LinkSpec(0.5e-6, 10e9))
    return replace(two_level(8, 1, link, link), network=network)


def shift(cluster: Cluster, by: int, nbytes: int = 1 << 26) -> float:
    s = Script(cluster.devices)
    for rank in range(cluster.devices):
        s.step(rank, [((rank + by) % cluster.devices, nbytes)], [(rank - by) % cluster.devices])
    return replay(s.done(), cluster).makespan


@pytest.mark.parametrize("oversubscription", [1, 2, 4])
def test_leaves_give_what_their_uplinks_hold(oversubscription: int) -> None:
    cluster = leafy(oversubscription)
    one = (1 << 26) / 10e9
    assert shift(cluster, 4) == pytest.approx(oversubscription * one, rel=0.001)
    # The same exchange as a collective's closed form.
    everything = collective_seconds("all_to_all", range(8), [8 << 26] * 8, cluster)
    assert everything == pytest.approx(max(7, 4 * oversubscription) * one, rel=0.01)


def test_shifts_do_not_meet_in_a_full_network() -> None:
    cluster = leafy(1)
    for by in range(1, 8):
        assert shift(cluster, by) == pytest.approx((1 << 26) / 10e9, rel=0.001)


def test_routes_depend_on_the_destination_alone() -> None:
    cluster = preset("dgx-h100*40")
    spines = {
        name
        for src in range(0, 64, 8)
        for link in cluster.path(src, 39 * 8 + 3).links
        if "spine" in (name := cluster.link_name(link)) and name.endswith("down")
    }
    assert len(spines) == 1


def test_latency_grows_with_every_tier() -> None:
    link = LinkSpec(1e-6, 10e9)
    network = Network(
        2, 2, LinkSpec(0.5e-6, 10e9), leaves_per_pod=2, cores_per_spine=2,
        core=LinkSpec(0.7e-6, 10e9),
    )  # fmt: skip
    cluster = replace(two_level(16, 1, link, link), network=network)
    tiers = [(1, 2, 1.0e-6), (3, 4, 2.0e-6), (9, 6, 3.4e-6)]
    for dst, links, latency in tiers:
        path = cluster.path(0, dst)
        assert (len(path.links), path.latency) == (links, pytest.approx(latency))
    names = [cluster.link_name(link) for link in cluster.path(0, 9).links]
    assert names[1:5] == [
        "leaf 0 spine 1 up",
        "pod 0 spine 1 core 0 up",
        "pod 2 spine 1 core 0 down",
        "leaf 4 spine 1 down",
    ]


def test_rings_of_a_group_share_an_oversubscribed_uplink() -> None:
    """Every other node: each step of the ring leaves the leaf on an uplink of its own, or not."""
    cluster = leafy(4)
    crowd = cluster.layout([0, 4, 1, 5, 2, 6, 3, 7])
    calm = cluster.layout(range(8))
    assert crowd.outer.bandwidth == pytest.approx(10e9 / 4)
    assert calm.outer.bandwidth == pytest.approx(10e9)
    assert math.isclose(calm.outer.latency, 2e-6)


def test_unequal_shares_of_nodes_take_a_flat_ring() -> None:
    cluster = preset("h800-v3*2")
    layout = cluster.layout([0, 1, 2, 8])
    assert (layout.nodes, layout.per_node) == (1, 4)
    assert layout.inner.bandwidth == pytest.approx(50e9)
    adding = preset("dgx-h100*2")
    seconds = all_reduce(adding, 9, 9 << 20)
    ring = 2 * 8 * (adding.path(7, 8).latency + (1 << 20) / 47e9)
    assert seconds == pytest.approx(ring)
