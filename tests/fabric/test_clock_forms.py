"""Closed forms on machines whose links are shared, against the same messages played."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.fabric.clock import replay
from grader.fabric.clock_collectives import collective_seconds
from grader.fabric.cluster import LinkSpec, two_level
from grader.fabric.presets import preset
from grader.fabric.topology import Network
from tests.fabric import played_records as played
from tests.fabric.played_records import Script

PLAYED = [("pcie-4090x8", 2), ("pcie-4090x8", 8), ("dgx-a100", 8), ("dgx-h100*64", 16)]


@pytest.mark.parametrize(("name", "ranks"), PLAYED)
@pytest.mark.parametrize("nbytes", [0, 1000, 1 << 20])
def test_gather_and_scatter_take_the_time_of_their_messages(
    name: str, ranks: int, nbytes: int
) -> None:
    cluster = preset(name)
    others = range(1, ranks)
    gather, scatter = Script(ranks), Script(ranks)
    gather.step(0, [], others)
    scatter.step(0, [(rank, nbytes) for rank in others], [])
    for rank in others:
        gather.step(rank, [(0, nbytes)], [])
        scatter.step(rank, [], [0])
    for kind, script, size in (("gather", gather, nbytes), ("scatter", scatter, ranks * nbytes)):
        seconds = collective_seconds(kind, range(ranks), [size] * ranks, cluster, 0)
        assert seconds == pytest.approx(replay(script.done(), cluster).makespan, rel=0.01)


def test_all_to_all_pays_the_latencies_of_its_paths() -> None:
    cluster = preset("pcie-4090x8")
    for ranks in (2, 8):
        s = Script(ranks)
        played.pairwise_all_to_all(s, ranks, 1000 * ranks)
        seconds = collective_seconds("all_to_all", range(ranks), [1000 * ranks] * ranks, cluster)
        assert seconds == pytest.approx(replay(s.done(), cluster).makespan, rel=0.02)


@pytest.mark.parametrize(("ranks", "off"), [(2, 1e-6), (4, 0.15), (8, 0.15)])
def test_trees_do_not_share_the_links_of_rings(ranks: int, off: float) -> None:
    """Messages that share a memory follow each other, for which the form allows nothing."""
    cluster, nbytes = preset("pcie-4090x8"), 1 << 24
    for kind, play in (
        ("broadcast", played.binomial_broadcast),
        ("reduce", played.binomial_reduce),
    ):
        s = Script(ranks)
        play(s, ranks, nbytes)
        seconds = collective_seconds(kind, range(ranks), [nbytes] * ranks, cluster, 0)
        assert seconds == pytest.approx(replay(s.done(), cluster).makespan, rel=off)
    # The root is not always the first, and nodes may have unequal shares.
    for members, root in (([3, 1, 2, 0], 2), ([0, 1, 2, 8], 8)):
        wide = preset("pcie-4090x8*2")
        assert (
            collective_seconds("broadcast", members, [nbytes] * 4, wide, root) > 2 * nbytes / 25e9
        )


def test_reduction_in_the_network_waits_for_slow_uplinks() -> None:
    """8 nodes of 4 devices, 4 nodes below a leaf: 4 sums climb out of a leaf at a time."""
    link = LinkSpec(1e-6, 10e9)
    nbytes = 1 << 28
    plain = replace(two_level(8, 4, LinkSpec(1e-6, 1e15), link), network_adds=True)
    for spines, rate, times in ((4, 10e9, 1), (2, 10e9, 2), (1, 10e9, 4), (1, 5e9, 8)):
        network = Network(4, spines, LinkSpec(0.5e-6, rate))
        seconds = collective_seconds(
            "all_reduce", range(32), [nbytes] * 32, replace(plain, network=network)
        )
        ring = collective_seconds(
            "all_reduce", range(32), [nbytes] * 32,
            replace(plain, network=network, network_adds=False),
        )  # fmt: skip
        assert seconds == pytest.approx(min(ring, times * nbytes / 4 / 10e9), rel=0.01)
    # Below one leaf nothing climbs.
    narrow = replace(plain, network=Network(4, 1, LinkSpec(0, 1e6)))
    seconds = collective_seconds("all_reduce", range(16), [nbytes] * 16, narrow)
    assert seconds == pytest.approx(nbytes / 4 / 10e9, rel=0.01)
