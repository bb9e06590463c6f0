"""The replay against formulas and arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest

from grader.fabric.clock import replay
from grader.fabric.clock_collectives import COLLECTIVES
from grader.fabric.clock_timeline import Timeline
from grader.fabric.cluster import Cluster, LinkSpec, two_level, uniform
from tests.fabric import played_records as played
from tests.fabric.played_records import Script

ALPHA, BANDWIDTH = 5e-6, 50e9
BETA = 1 / BANDWIDTH
N = 64 << 20
INTRA, INTER = LinkSpec(3e-6, 450e9), LinkSpec(8e-6, 50e9)

Algorithm = Callable[[Script, int, int], None]


def run(s: Script, cluster: Cluster | None = None) -> Timeline:
    record = s.done()
    return replay(record, cluster or uniform(record.world_size, ALPHA, BANDWIDTH))


def approx(seconds: float) -> object:
    return pytest.approx(seconds, rel=1e-9)


def ring(s: Script, p: int, nbytes: int) -> None:
    played.ring_all_reduce(s, range(p), nbytes)


def formulas(p: int) -> Iterator[tuple[Algorithm, float, float]]:
    """Algorithm, messages' latencies α, and vectors n that pass a port, one after another."""
    lg, rounds, folded = p.bit_length() - 1, (p - 1).bit_length(), 2 * bool(p & (p - 1))
    q = 1 << lg
    yield played.pairwise_all_reduce, p - 1, p - 1
    yield played.posted_at_once, 1, p - 1
    yield played.parameter_server, 2, 2 * (p - 1)
    yield ring, 2 * (p - 1), 2 * (p - 1) / p
    yield played.recursive_doubling, lg + folded, lg + folded
    yield played.halving_doubling, 2 * lg + folded, 2 * (q - 1) / q + folded
    yield played.binomial_broadcast, rounds, rounds
    yield played.binomial_all_reduce, 2 * rounds, 2 * rounds
    yield played.pairwise_all_to_all, p - 1, (p - 1) / p


@pytest.mark.parametrize("p", [2, 6, 8, 64])
@pytest.mark.parametrize("index", range(9))
def test_algorithms_take_the_time_of_the_alpha_beta_model(p: int, index: int) -> None:
    algorithm, alphas, vectors = list(formulas(p))[index]
    nbytes = N if p & (p - 1) == 0 else N // p * p
    s = Script(p)
    algorithm(s, p, nbytes)
    assert run(s).makespan == approx(alphas * ALPHA + vectors * nbytes * BETA)


@pytest.mark.parametrize(("nodes", "per_node"), [(2, 4), (4, 8), (3, 2), (1, 8), (8, 1)])
def test_hierarchical_all_reduce_takes_the_two_level_formula(nodes: int, per_node: int) -> None:
    g, k, n = per_node, nodes, 1 << 20
    n = n * g * k
    s = Script(g * k)
    played.hierarchical_all_reduce(s, k, g, n)
    expected = 2 * (g - 1) * INTRA.latency + 2 * n * (g - 1) / g / INTRA.bandwidth
    expected += 2 * (k - 1) * INTER.latency + 2 * (n / g) * (k - 1) / k / INTER.bandwidth
    cluster = two_level(k, g, INTRA, INTER)
    assert run(s, cluster).makespan == approx(expected)
    whole = Script(g * k)
    for rank in range(g * k):
        whole.wait(rank, whole.collective(rank, "all_reduce", n))
    assert run(whole, cluster).makespan == approx(expected)


@pytest.mark.parametrize("nbytes", [1 << 10, 1 << 20, 1 << 28])
def test_flat_ring_through_one_nic_never_beats_the_hierarchy(nbytes: int) -> None:
    cluster = two_level(4, 4, INTRA, INTER)
    flat, hierarchy = Script(16), Script(16)
    played.ring_all_reduce(flat, range(16), nbytes)
    played.hierarchical_all_reduce(hierarchy, 4, 4, nbytes)
    assert run(flat, cluster).makespan > run(hierarchy, cluster).makespan


def test_ranks_that_share_a_nic_wait_for_each_other() -> None:
    s = Script(4)
    for rank in (0, 1):
        s.step(rank, [(rank + 2, N)], [])
        s.step(rank + 2, [], [rank])
    alone = INTER.latency + N / INTER.bandwidth
    assert run(s, two_level(2, 2, INTRA, INTER)).makespan == approx(alone)
    shared = two_level(2, 2, INTRA, INTER, nics_per_node=1)
    assert run(s, shared).makespan == approx(alone + N / INTER.bandwidth)


def test_slowest_link_of_a_path_sets_the_pace() -> None:
    slot, card = LinkSpec(1e-6, 20e9), LinkSpec(7e-6, 50e9)
    cluster = Cluster("pcie", 2, 1, slot, card, shared_port=True)
    s = Script(2)
    s.step(0, [(1, N)], [])
    s.step(1, [], [0])
    assert len(cluster.path(0, 1).links) == 4
    assert run(s, cluster).makespan == approx(7e-6 + N / 20e9)


def test_message_waits_in_the_receivers_queue_behind_earlier_arrivals() -> None:
    s = Script(3)
    s.compute(1, flops=int(100e12 * 1e-4))
    first, second = 50_000_000, 5_000_000  # 1 ms, 0.1 ms
    s.step(0, [(2, first)], [])
    s.step(1, [(2, second)], [])
    s.step(2, [], [0, 1])
    timeline = run(s)
    assert timeline.finish[0] == approx(1e-3 + ALPHA)
    assert timeline.finish[1] == approx(1.1e-3 + ALPHA)


@pytest.mark.parametrize("delay", [0, 5e-4])
def test_message_held_up_at_its_first_link_keeps_nobody_from_the_second(delay: float) -> None:
    s = Script(4)
    ops = [s.send(0, 3, 50_000_000), s.send(0, 2, 5_000_000)]  # 1 ms, then 0.1 ms
    s.wait(0, *ops)
    s.compute(1, flops=round(100e12 * delay))
    s.step(1, [(2, 5_000_000)], [])
    s.step(2, [], [0, 1])
    s.step(3, [], [0])
    timeline = run(s)
    assert timeline.finish[1] == approx(delay + 0.1e-3 + ALPHA)
    assert timeline.finish[0] == approx(1.1e-3 + ALPHA)


def test_computation_takes_the_longer_of_flops_and_bytes() -> None:
    s = Script(1)
    s.compute(0, flops=3_000, nbytes=1)
    s.compute(0, flops=1, nbytes=5_000)
    timeline = run(s, uniform(1, 0, 1e9, flops=1e6, memory_bandwidth=1e6))
    assert [segment.end for segment in timeline.segments(0)] == [approx(3e-3), approx(8e-3)]
    assert timeline.computing(0) == approx(8e-3)


@pytest.mark.parametrize("compute", [20e-6, 100e-6, 500e-6])
def test_chunks_are_sent_while_the_next_is_computed(compute: float) -> None:
    """A two-stage pipeline: its slower stage sets the pace, the other shows once."""
    chunks, nbytes = 10, 5_000_000
    transfer = nbytes * BETA
    s = Script(2)
    sends, recvs = [], [s.recv(1, 0, -1) for _ in range(chunks)]
    for _ in range(chunks):
        s.compute(0, flops=round(compute * 100e12))
        sends.append(s.send(0, 1, nbytes))
    s.wait(0, *sends)
    s.wait(1, *recvs)
    timeline = run(s)
    expected = compute + transfer + (chunks - 1) * max(compute, transfer) + ALPHA
    assert timeline.makespan == approx(expected)
    assert timeline.computing(0) == approx(chunks * compute)
    # The rank computes from the end of the first chunk on, while a message is almost always there.
    in_flight = min(compute, transfer + ALPHA) if compute > transfer else compute
    assert timeline.overlap(0) == approx((chunks - 1) * in_flight)
    assert timeline.overlap(1) == 0
    assert timeline.idle(0) == approx(expected - chunks * compute)
    assert timeline.blocked(1) == approx(expected)


def test_empty_messages_pay_latency_only_and_a_device_reaches_itself_for_free() -> None:
    s = Script(2)
    s.step(0, [(1, 0)], [])
    s.step(1, [], [0])
    s.step(1, [(1, N)], [1])
    assert run(s).finish == [ALPHA, ALPHA]


def test_empty_message_does_not_queue_behind_a_long_one() -> None:
    s = Script(2)
    ops = [s.send(0, 1, N), s.send(0, 1, 0)]
    s.wait(1, s.recv(1, 0, -1), s.recv(1, 0, -1))
    assert run(s).end[ops[1]] == ALPHA


def test_idle_time_runs_to_the_end_of_the_run_and_blocked_time_does_not() -> None:
    s = Script(3)
    s.compute(0, flops=int(100e12 * 1e-3))
    s.step(0, [(1, 0)], [])
    s.step(1, [], [0])
    timeline = run(s)
    assert timeline.idle(0) == timeline.blocked(0) == approx(ALPHA)
    assert (timeline.idle(2), timeline.blocked(2)) == (approx(1e-3 + ALPHA), 0)


def test_steps_outside_the_region_take_no_time_but_still_order_the_ranks() -> None:
    s = Script(2)
    s.region = False
    s.compute(0, flops=10**15)
    s.step(0, [(1, N)], [])
    s.step(1, [], [0])
    s.region = True
    s.step(1, [(0, N)], [])
    s.step(0, [], [1])
    s.region = False
    s.compute(0, flops=10**15)
    timeline = run(s)
    assert timeline.makespan == approx(ALPHA + N * BETA)
    assert [len(timeline.operations(rank)) for rank in (0, 1)] == [1, 1]
    assert timeline.complete


def collective(kind: str, p: int, nbytes: int, cluster: Cluster, **more: int) -> float:
    s = Script(p)
    for rank in range(p):
        s.wait(rank, s.collective(rank, kind, nbytes, **more))
    return run(s, cluster).makespan


CLOSED_FORMS = {
    "all_reduce": (14, 14 / 8),
    "all_gather": (7, 7),
    "reduce_scatter": (7, 7 / 8),
    "all_to_all": (7, 7 / 8),
    "broadcast": (3, 3),
    "reduce": (3, 3),
    "gather": (1, 7),
    "scatter": (1, 7 / 8),
    "barrier": (3, 0),
}


@pytest.mark.parametrize("kind", sorted(COLLECTIVES))
def test_collectives_last_their_closed_form(kind: str) -> None:
    alphas, vectors = CLOSED_FORMS[kind]
    cluster = uniform(8, ALPHA, BANDWIDTH)
    root = {"root": 2} if kind in ("broadcast", "reduce", "gather", "scatter") else {}
    seconds = collective(kind, 8, N, cluster, **root)
    assert seconds == approx(alphas * ALPHA + vectors * N * BETA)
    assert collective(kind, 1, N, cluster, **dict.fromkeys(root, 0)) == 0


def test_switch_that_adds_needs_two_latencies_and_one_vector() -> None:
    cluster = uniform(8, ALPHA, BANDWIDTH, switch_adds=True)
    assert collective("all_reduce", 8, N, cluster) == approx(2 * ALPHA + N * BETA)


def test_group_with_unequal_shares_takes_the_flat_formula_on_the_slowest_link() -> None:
    cluster = two_level(2, 2, INTRA, INTER)
    seconds = collective("all_reduce", 3, 3 << 20, cluster)
    assert seconds == approx(4 * INTER.latency + 4 * (1 << 20) / INTER.bandwidth)


def test_uneven_all_to_all_takes_its_largest_row_or_column() -> None:
    table = [(9, 100, 0), (0, 9, 300), (50, 0, 9)]
    s = Script(3)
    for rank, row in enumerate(table):
        op = s.collective(rank, "all_to_all", sum(row), splits=row)
        s.wait(rank, op)
    assert run(s).makespan == approx(2 * ALPHA + 300 * BETA)


def test_collective_begins_when_the_last_rank_is_there_and_ports_are_free() -> None:
    s = Script(2)
    send, recv = s.send(0, 1, N), s.recv(1, 0, -1)
    s.compute(1, flops=int(1e-4 * 100e12))
    ops = [s.collective(rank, "barrier", 0) for rank in (0, 1)]
    s.wait(0, send, ops[0])
    s.wait(1, recv, ops[1])
    timeline = run(s)
    assert N * BETA > 1e-4
    assert timeline.begin[ops[0]] == approx(N * BETA)
    assert timeline.end[ops[1]] == approx(N * BETA + ALPHA)


def test_groups_on_different_nics_do_not_slow_each_other() -> None:
    s = Script(4)
    s.record.groups |= {1: (0, 2), 2: (1, 3)}
    for rank in range(4):
        s.wait(rank, s.collective(rank, "all_reduce", N, group=1 + rank % 2))
    expected = 2 * INTER.latency + N / INTER.bandwidth
    assert run(s, two_level(2, 2, INTRA, INTER)).makespan == approx(expected)


def test_run_that_was_cut_off_is_replayed_as_far_as_it_goes() -> None:
    s = Script(3)
    s.step(0, [(1, N)], [])
    s.step(1, [], [0])
    hung = [s.recv(0, 1, 8), s.recv(1, 0, 8)]
    for rank, op in enumerate(hung):
        s.wait(rank, op)
        s.compute(rank, flops=10**12)
    barrier = s.collective(2, "barrier", 0)
    s.wait(2, barrier)
    timeline = run(s)
    assert not timeline.complete
    assert timeline.stuck == {0: hung[0], 1: hung[1], 2: barrier}
    assert timeline.makespan == approx(ALPHA + N * BETA)
    assert math.isnan(timeline.end[barrier])
    assert timeline.computing(0) == 0


def test_send_never_waited_for_counts_and_one_never_received_is_told() -> None:
    s = Script(2)
    s.send(0, 1, N)
    s.wait(1, s.recv(1, 0, -1))
    assert run(s).complete
    s.send(0, 1, N)
    timeline = run(s)
    assert not timeline.complete
    assert timeline.stuck == {}


def test_order_dependence_is_handed_on() -> None:
    s = Script(1)
    s.record.order_dependent = True
    assert run(s).order_dependent


def test_more_ranks_than_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="3 ranks do not fit on uniform: 2 devices"):
        run(Script(3), uniform(2, ALPHA, BANDWIDTH))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinkSpec(-1e-6, 1e9), "latency"),
        (lambda: LinkSpec(math.nan, 1e9), "latency"),
        (lambda: LinkSpec(0, 0), "bandwidth"),
        (lambda: LinkSpec(0, math.inf), "bandwidth"),
        (lambda: uniform(0, 0, 1e9), "devices_per_node must be at least 1, got 0"),
        (lambda: two_level(0, 8, INTRA, INTER), "nodes must be at least 1, got 0"),
        (lambda: two_level(2, 4, INTRA, INTER, nics_per_node=5), r"nics_per_node must be 1 … 4"),
        (lambda: uniform(2, 0, 1e9, flops=0), "flops"),
        (lambda: uniform(2, 0, 1e9, memory_bandwidth=math.nan), "memory_bandwidth"),
        (lambda: Cluster.preset("dgx-1"), "unknown cluster 'dgx-1'; known: uniform"),
        (lambda: uniform(2, 0, 1e9).path(0, 2), "devices 0 … 1, not 2"),
    ],
)
def test_bad_numbers_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_links_have_names_and_devices_their_nic() -> None:
    cluster = two_level(2, 4, INTRA, INTER, nics_per_node=2)
    assert [cluster.link_name(link) for link in cluster.path(1, 3).links] == [
        "device 1 out",
        "device 3 in",
    ]
    assert [cluster.link_name(link) for link in cluster.path(1, 6).links] == [
        "node 0 nic 0 out",
        "node 1 nic 1 in",
    ]
    assert Cluster.preset("uniform", 64).devices == 64
