"""Checks of assignment 2: all-reduce on rings, hypercubes and two levels of a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from grader.checks.a1_cases import Spec, random_tensor, refusal
from grader.checks.a2_cases import (
    CHUNKS,
    FLOAT,
    REDUCTIONS,
    WORLDS,
    all_gather_case,
    all_reduce_case,
    deal,
    hierarchical_case,
    lengths,
    op_refusals,
    reduce_scatter_case,
)
from grader.checks.causes import Bench, Case
from grader.checks.causes_a2 import node_traffic, ring_peers, too_many_bytes
from grader.checks.framework import CheckFailed, check
from grader.checks.world import SimulatedCluster
from grader.fabric.cluster import LinkSpec, two_level, uniform
from grader.fabric.trace import Trace

NO_THROUGHPUT = "throughput is not measured by this version"

#: Runs whose traffic is counted: world, sub-group, tensor. Their values must be right, too.
COUNTED: tuple[tuple[int, tuple[int, ...] | None, Spec], ...] = (
    (4, None, (torch.float32, (1001,), False)),
    (3, None, (torch.bfloat16, (100,), False)),
    (2, None, (torch.float32, (10,), False)),
    (8, None, (torch.float32, (5,), False)),
    (6, (5, 0, 3, 2), (torch.float32, (64,), False)),
    (1, None, (torch.float32, (6,), False)),
)

#: Nodes of the two-level checks, by the global ranks of their places.
NODES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((0, 1), (2, 3)),
    ((0, 1, 2, 3), (4, 5, 6, 7)),
    ((0, 1), (2, 3), (4, 5)),
    ((5, 0, 3), (1, 4, 2)),
    ((0, 1, 2),),
    ((0,), (1,), (2,)),
)

Cluster = SimulatedCluster
Rng = torch.Generator
Make = Callable[..., Case]


def bench(cluster: Cluster, task: str) -> Bench:
    """Runs cases of a task around one group."""
    return Bench(cluster, f"a2.{task}", "a1:collective")


def counted(runner: Bench, make: Make) -> Iterator[Counted]:
    """The traces of `COUNTED`. A limit that is broken is reported with the case it belongs to."""
    for world, ranks, spec in COUNTED:
        case = make(world, ranks, spec, "SUM")
        trace = runner.run([case]).trace
        with about(case):
            yield Counted(case.members, spec[1][0], spec[0].itemsize, trace)


@contextmanager
def about(case: Case) -> Iterator[None]:
    """Put the case before the message of a failure."""
    try:
        yield
    except CheckFailed as failure:
        failure.message = f"{case.label}: {failure.message}"
        raise


def nbytes_of(spec: Spec) -> int:
    """Bytes of a tensor with this dtype and shape."""
    return torch.Size(spec[1]).numel() * spec[0].itemsize


# ring_reduce_scatter, ring_all_gather -----------------------------------------------------------


@check("a2.ring_reduce_scatter", 5, "reduces chunk i onto rank i, and leaves its input alone")
def test_reduce_scatter_values(cluster: Cluster, rng: Rng) -> None:
    make = partial(reduce_scatter_case, rng)
    bench(cluster, "ring_reduce_scatter").run_all(deal(make, CHUNKS, WORLDS), schedules=2)


@check("a2.ring_all_gather", 5, "puts every rank's chunk in its place")
def test_all_gather_values(cluster: Cluster, rng: Rng) -> None:
    def make(world: int, ranks: Sequence[int] | None, spec: Spec, op: str) -> Case:
        return all_gather_case(rng, world, ranks, spec)

    bench(cluster, "ring_all_gather").run_all(deal(make, CHUNKS, WORLDS), schedules=2)


@check("a2.ring_reduce_scatter", 1, "refuses wrong arguments on every rank")
def test_reduce_scatter_refusals(cluster: Cluster, rng: Rng) -> None:
    def wrong(rows: int) -> list[dict[str, Any]]:
        return [
            {"output": torch.zeros(3), "tensor": random_tensor(rng, (FLOAT, (rows,), False))}
            for _ in range(3)
        ]

    cases = [
        refusal("tensor (10,) for output (3,) on 3 ranks", wrong(10), ["tensor|output", "10", "3"]),
        refusal("tensor (6,) for output (3,) on 3 ranks", wrong(6), ["tensor|output", "6", "3"]),
        refusal("op BAND", wrong(9), ["op", "BAND"], op="BAND"),
        refusal(
            "AVG of int64",
            [{"output": torch.zeros(2).long(), "tensor": torch.arange(6)} for _ in range(3)],
            ["op|AVG", "int64"],
            op="AVG",
        ),
    ]
    for case in cases[:2]:
        case.op = "SUM"
    bench(cluster, "ring_reduce_scatter").run_all(cases)


@check("a2.ring_all_gather", 1, "refuses wrong arguments on every rank")
def test_all_gather_refusals(cluster: Cluster, rng: Rng) -> None:
    def wrong(rows: int) -> list[dict[str, Any]]:
        tensors = [random_tensor(rng, (FLOAT, (4,), False)) for _ in range(3)]
        return [{"output": torch.zeros(rows), "tensor": tensor} for tensor in tensors]

    cases = [
        refusal("output (13,) for tensor (4,) on 3 ranks", wrong(13), ["output|tensor", "13", "4"]),
        refusal("output (8,) for tensor (4,) on 3 ranks", wrong(8), ["output|tensor", "8", "4"]),
    ]
    bench(cluster, "ring_all_gather").run_all(cases)


def chunk_makers(rng: Rng) -> dict[str, Make]:
    """How to make cases of the two halves, from the spec of a chunk."""
    return {
        "ring_reduce_scatter": partial(reduce_scatter_case, rng),
        "ring_all_gather": lambda world, ranks, spec, op: all_gather_case(rng, world, ranks, spec),
    }


def half_around_the_ring(cluster: Cluster, rng: Rng, task: str) -> None:
    for label, members, _, trace in counted(bench(cluster, task), chunk_makers(rng)[task]):
        expect_ring(label, members, trace)


def half_of_the_traffic(cluster: Cluster, rng: Rng, task: str, metrics: dict[str, Any]) -> None:
    for label, members, spec, trace in counted(bench(cluster, task), chunk_makers(rng)[task]):
        steps, chunk = len(members) - 1, nbytes_of(spec)
        allowed = [steps * chunk] * len(members)
        rule = f"n - 1 = {steps} chunks of {chunk} bytes"
        whole = chunk * len(members)
        expect_bytes(label, members, trace, allowed, whole, spec[0].itemsize, rule)
        expect_rounds(label, trace, steps, "n - 1")
        metrics.setdefault("bytes_per_rank", max(trace.bytes_sent))


@check("a2.ring_reduce_scatter", 2, "sends to the next rank only")
def test_reduce_scatter_peers(cluster: Cluster, rng: Rng) -> None:
    half_around_the_ring(cluster, rng, "ring_reduce_scatter")


@check("a2.ring_all_gather", 2, "sends to the next rank only")
def test_all_gather_peers(cluster: Cluster, rng: Rng) -> None:
    half_around_the_ring(cluster, rng, "ring_all_gather")


@check("a2.ring_reduce_scatter", 4, "sends n - 1 chunks in n - 1 rounds")
def test_reduce_scatter_traffic(cluster: Cluster, rng: Rng, metrics: dict[str, Any]) -> None:
    half_of_the_traffic(cluster, rng, "ring_reduce_scatter", metrics)


@check("a2.ring_all_gather", 4, "sends n - 1 chunks in n - 1 rounds")
def test_all_gather_traffic(cluster: Cluster, rng: Rng, metrics: dict[str, Any]) -> None:
    half_of_the_traffic(cluster, rng, "ring_all_gather", metrics)


# ring_all_reduce, pipelined_ring_all_reduce -----------------------------------------------------


def reduces(cluster: Cluster, rng: Rng, task: str, *more: Case) -> None:
    make = partial(all_reduce_case, rng)
    cases = [*deal(make, REDUCTIONS, WORLDS), *lengths(make, WORLDS), *more]
    bench(cluster, task).run_all(cases, schedules=2)


def same_bits(cluster: Cluster, rng: Rng, task: str, **options: Any) -> None:
    """Random numbers, whose sum depends on the order of additions."""
    cases = [
        all_reduce_case(rng, world, None, (dtype, (37,), False), op, bits=True, **options)
        for world, dtype, op in (
            (3, torch.float32, "SUM"),
            (4, torch.bfloat16, "SUM"),
            (5, torch.float32, "AVG"),
            (8, torch.float32, "PRODUCT"),
        )
    ]
    bench(cluster, task).run_all(cases)


@check("a2.ring_all_reduce", 7.5, "reduces on every rank")
def test_ring_values(cluster: Cluster, rng: Rng) -> None:
    reduces(cluster, rng, "ring_all_reduce")


@check("a2.ring_all_reduce", 2, "leaves the same bits on every rank")
def test_ring_bits(cluster: Cluster, rng: Rng) -> None:
    same_bits(cluster, rng, "ring_all_reduce")


@check("a2.ring_all_reduce", 1.5, "refuses wrong arguments on every rank")
def test_ring_refusals(cluster: Cluster, rng: Rng) -> None:
    bench(cluster, "ring_all_reduce").run_all(op_refusals(rng, 3))


@check("a2.ring_all_reduce", 2.5, "sends to the next rank only")
def test_ring_peers(cluster: Cluster, rng: Rng) -> None:
    make = partial(all_reduce_case, rng)
    for label, members, _, trace in counted(bench(cluster, "ring_all_reduce"), make):
        expect_ring(label, members, trace)


def ring_traffic(runner: Bench, make: Make, metrics: dict[str, Any]) -> None:
    for label, members, spec, trace in counted(runner, make):
        size, itemsize = len(members), spec[0].itemsize
        chunk = math.ceil(torch.Size(spec[1]).numel() / size)
        limit = 2 * (size - 1) * chunk * itemsize
        rule = f"2 (n - 1) ⌈N / n⌉ = {2 * (size - 1) * chunk} elements of {itemsize} bytes"
        expect_bytes(label, members, trace, [limit] * size, nbytes_of(spec), itemsize, rule)
        metrics.setdefault("bytes_per_rank", max(trace.bytes_sent))
        metrics.setdefault("allowed_bytes_per_rank", limit)


@check("a2.ring_all_reduce", 3.5, "sends no more than a ring must")
def test_ring_bytes(cluster: Cluster, rng: Rng, metrics: dict[str, Any]) -> None:
    ring_traffic(bench(cluster, "ring_all_reduce"), partial(all_reduce_case, rng), metrics)


@check("a2.ring_all_reduce", 2.5, "needs no more than 2 (n - 1) rounds")
def test_ring_rounds(cluster: Cluster, rng: Rng, metrics: dict[str, Any]) -> None:
    make = partial(all_reduce_case, rng)
    for label, members, _, trace in counted(bench(cluster, "ring_all_reduce"), make):
        expect_rounds(label, trace, 2 * (len(members) - 1), "2 (n - 1)")
        metrics.setdefault("rounds", trace.rounds)


@check("a2.ring_all_reduce", 6.5, "keeps up with the library's all-reduce")
def test_ring_throughput() -> None:
    pytest.skip(NO_THROUGHPUT)


@check("a2.pipelined_ring_all_reduce", 2.5, "reduces on every rank, whatever the segments")
def test_pipelined_values(cluster: Cluster, rng: Rng) -> None:
    make = partial(all_reduce_case, rng)
    segments = [
        make(world, None, (dtype, (length,), False), op, segment_bytes=segment_bytes)
        for world, dtype, length, op, segment_bytes in (
            (2, torch.float32, 9, "SUM", 4),
            (3, torch.float32, 50, "AVG", 12),
            (3, torch.float64, 7, "SUM", 1),
            (4, torch.bfloat16, 61, "SUM", 6),
            (4, torch.float32, 100, "MAX", 10),
            (5, torch.int64, 33, "SUM", 16),
            (8, torch.float32, 65, "AVG", 8),
        )
    ]
    segments.append(make(5, (4, 1, 2), (FLOAT, (40,), False), "AVG", segment_bytes=8))
    reduces(cluster, rng, "pipelined_ring_all_reduce", *segments)


@check("a2.pipelined_ring_all_reduce", 0.5, "leaves the same bits on every rank")
def test_pipelined_bits(cluster: Cluster, rng: Rng) -> None:
    same_bits(cluster, rng, "pipelined_ring_all_reduce", segment_bytes=8)


@check("a2.pipelined_ring_all_reduce", 0.5, "refuses wrong arguments on every rank")
def test_pipelined_refusals(cluster: Cluster, rng: Rng) -> None:
    def wrong(segment_bytes: int) -> Case:
        arguments = [
            {"tensor": random_tensor(rng, (FLOAT, (8,), False)), "segment_bytes": segment_bytes}
            for _ in range(3)
        ]
        names = ["segment_bytes", str(segment_bytes)]
        return refusal(f"segment_bytes={segment_bytes}", arguments, names, op="SUM")

    cases = [*op_refusals(rng, 3), wrong(0), wrong(-4)]
    bench(cluster, "pipelined_ring_all_reduce").run_all(cases)


@check("a2.pipelined_ring_all_reduce", 1, "sends to the next rank only")
def test_pipelined_peers(cluster: Cluster, rng: Rng) -> None:
    make = partial(all_reduce_case, rng, segment_bytes=64)
    for label, members, _, trace in counted(bench(cluster, "pipelined_ring_all_reduce"), make):
        expect_ring(label, members, trace)


@check("a2.pipelined_ring_all_reduce", 1.5, "sends no more than a ring must")
def test_pipelined_bytes(cluster: Cluster, rng: Rng, metrics: dict[str, Any]) -> None:
    make = partial(all_reduce_case, rng, segment_bytes=64)
    ring_traffic(bench(cluster, "pipelined_ring_all_reduce"), make, metrics)


@check("a2.pipelined_ring_all_reduce", 3, "hides the reduction behind the transfer")
def test_pipelined_overlap(cluster: Cluster, rng: Rng, metrics: dict[str, Any]) -> None:
    segments, segment_bytes, bandwidth = 16, 1024, 1e9
    for world in (4, 3):
        spec: Spec = (FLOAT, (world * segments * segment_bytes // 4,), False)
        case = all_reduce_case(rng, world, None, spec, "SUM", segment_bytes=segment_bytes)
        trace = bench(cluster, "pipelined_ring_all_reduce").run([case], compute=True).trace
        # To add a byte takes as long as to send one: it moves three, two read and one written.
        machine = uniform(world, 1e-8, bandwidth, flops=math.inf, memory_bandwidth=3 * bandwidth)
        reductions = (world - 1) / world * nbytes_of(spec) / bandwidth
        transfers = 2 * reductions
        took, allowed = trace.on(machine).makespan, 1.25 * transfers
        metrics.setdefault("virtual_time_over_larger", round(took / transfers, 3))
        if took > allowed:
            serial = took > 0.95 * (transfers + reductions)
            raise CheckFailed(
                f"{case.label}: {took * 1e6:.1f} µs of virtual time, expected at most "
                f"{allowed * 1e6:.1f} = 1.25 × the larger of {transfers * 1e6:.1f} for all "
                f"transfers and {reductions * 1e6:.1f} for all reductions",
                cause="nothing overlaps: while a segment is reduced, no other is on its way"
                if serial
                else "the wire idles: post the next segment before the last one is reduced",
            )


@check("a2.pipelined_ring_all_reduce", 3, "keeps up with the library's all-reduce")
def test_pipelined_throughput() -> None:
    pytest.skip(NO_THROUGHPUT)


# halving_doubling_all_reduce --------------------------------------------------------------------


@check("a2.halving_doubling_all_reduce", 4, "reduces on every rank")
def test_halving_values(cluster: Cluster, rng: Rng) -> None:
    make = partial(all_reduce_case, rng)
    more = [make(world, None, (FLOAT, (10,), False), "AVG") for world in (6, 7)]
    reduces(cluster, rng, "halving_doubling_all_reduce", *more)


@check("a2.halving_doubling_all_reduce", 1, "leaves the same bits on every rank")
def test_halving_bits(cluster: Cluster, rng: Rng) -> None:
    same_bits(cluster, rng, "halving_doubling_all_reduce")


@check("a2.halving_doubling_all_reduce", 1, "refuses wrong arguments on every rank")
def test_halving_refusals(cluster: Cluster, rng: Rng) -> None:
    bench(cluster, "halving_doubling_all_reduce").run_all(op_refusals(rng, 3))


@check("a2.halving_doubling_all_reduce", 3.5, "needs 2 ⌊log₂ n⌋ rounds, and 2 more at most")
def test_halving_rounds(cluster: Cluster, rng: Rng, metrics: dict[str, Any]) -> None:
    make = partial(all_reduce_case, rng)
    for label, members, _, trace in counted(bench(cluster, "halving_doubling_all_reduce"), make):
        bits = len(members).bit_length() - 1
        extra = len(members) != 1 << bits
        rule = "2 ⌊log₂ n⌋" + ", and 2 since n is no power of two" * extra
        expect_rounds(label, trace, 2 * bits + 2 * extra, rule)
        metrics.setdefault("rounds", trace.rounds)


@check("a2.halving_doubling_all_reduce", 2.5, "sends halves, then quarters, and so on")
def test_halving_bytes(cluster: Cluster, rng: Rng, metrics: dict[str, Any]) -> None:
    make = partial(all_reduce_case, rng)
    for label, members, spec, trace in counted(bench(cluster, "halving_doubling_all_reduce"), make):
        length, itemsize = torch.Size(spec[1]).numel(), spec[0].itemsize
        bits = len(members).bit_length() - 1
        extra = len(members) != 1 << bits
        limit = 2 * sum(math.ceil(length / 2**k) for k in range(1, bits + 1)) + extra * length
        rule = (
            f"2 (⌈N/2⌉ + ⌈N/4⌉ + …){' + N, since n is no power of two' * extra} = {limit} "
            f"elements of {itemsize} bytes"
        )
        allowed = [limit * itemsize] * len(members)
        expect_bytes(label, members, trace, allowed, nbytes_of(spec), itemsize, rule)
        metrics.setdefault("bytes_per_rank", max(trace.bytes_sent))


# hierarchical_all_reduce ------------------------------------------------------------------------


def levels(cluster: Cluster) -> Bench:
    return Bench(cluster, "a2.hierarchical_all_reduce", "a2:hierarchical")


@check("a2.hierarchical_all_reduce", 4, "reduces on every rank")
def test_hierarchical_values(cluster: Cluster, rng: Rng) -> None:
    cases = [
        hierarchical_case(rng, NODES[(number + shift) % len(NODES)], spec, op)
        for number, (spec, op) in enumerate(REDUCTIONS)
        for shift in (0, 3)
    ]
    cases += [
        hierarchical_case(rng, nodes, (FLOAT, (length,), False), op)
        for nodes in NODES[:4]
        for length, op in ((1, "SUM"), (3, "AVG"), (7, "SUM"), (29, "AVG"))
    ]
    cases.append(hierarchical_case(rng, [[0]], (FLOAT, (5,), False), "AVG"))
    levels(cluster).run_all(cases, schedules=2)


@check("a2.hierarchical_all_reduce", 1, "leaves the same bits on every rank")
def test_hierarchical_bits(cluster: Cluster, rng: Rng) -> None:
    spec: Spec = (FLOAT, (53,), False)
    cases = [hierarchical_case(rng, nodes, spec, "SUM", bits=True) for nodes in NODES[:4]]
    levels(cluster).run_all(cases)


@check("a2.hierarchical_all_reduce", 1, "refuses wrong arguments on every rank")
def test_hierarchical_refusals(cluster: Cluster, rng: Rng) -> None:
    levels(cluster).run_all(op_refusals(rng, 4, nodes=[[0, 1], [2, 3]]))


def between_nodes(cluster: Cluster, rng: Rng) -> Iterator[tuple[Case, Any, Spec, list[int]]]:
    """Bytes that every rank sends to other nodes, by global rank."""
    for nodes in NODES:
        for spec in ((torch.float32, (1001,), False), (torch.bfloat16, (96,), False)):
            case = hierarchical_case(rng, nodes, spec, "SUM")
            yield case, nodes, spec, node_traffic(levels(cluster).run([case]).trace, nodes)


@check("a2.hierarchical_all_reduce", 3, "sends no more between nodes than it must")
def test_hierarchical_bytes(cluster: Cluster, rng: Rng, metrics: dict[str, Any]) -> None:
    for case, nodes, spec, sent in between_nodes(cluster, rng):
        k, g, itemsize = len(nodes), len(nodes[0]), spec[0].itemsize
        shard = math.ceil(torch.Size(spec[1]).numel() / g)
        limit = 2 * (k - 1) * math.ceil(shard / k)
        metrics.setdefault("bytes_between_nodes", max(sent))
        if max(sent) <= limit * itemsize:
            continue
        idle = sent.count(0)
        cause = "a rank sends more of the vector to other nodes than its share, 1/g"
        if idle:
            cause = f"{idle} of {len(sent)} ranks send nothing between nodes, others do their part"
        elif itemsize == 2 and max(sent) > 1.9 * limit * itemsize:
            cause = "16-bit values travel as 32-bit ones"
        raise CheckFailed(
            f"{case.label}: rank {sent.index(max(sent))} sent {max(sent)} bytes to other nodes, "
            f"expected at most {limit * itemsize} (2 (k - 1) ⌈⌈N / g⌉ / k⌉ = {limit} elements of "
            f"{itemsize} bytes, k = {k} nodes of g = {g})",
            cause=cause,
        )


@check("a2.hierarchical_all_reduce", 2, "lets every GPU take part between the nodes")
def test_hierarchical_participation(cluster: Cluster, rng: Rng) -> None:
    for case, nodes, _, sent in between_nodes(cluster, rng):
        idle = [rank for rank, nbytes in enumerate(sent) if nbytes == 0]
        if idle and len(nodes) > 1:
            raise CheckFailed(
                f"{case.label}: ranks {idle} sent nothing to other nodes, expected every rank to "
                f"send about {sum(sent) // len(sent)} of the {sum(sent)} bytes",
                cause="one rank speaks for its node, and the network cards of the others idle",
            )


@check("a2.hierarchical_all_reduce", 3, "beats the flat ring where the formula says so")
def test_hierarchical_time(cluster: Cluster, rng: Rng, metrics: dict[str, Any]) -> None:
    inner, outer = LinkSpec(2e-6, 200e9), LinkSpec(10e-6, 2.5e9)
    spec: Spec = (FLOAT, (1 << 16,), False)
    for k, g in ((2, 4), (4, 2)):
        nodes = [list(range(node * g, node * g + g)) for node in range(k)]
        case = hierarchical_case(rng, nodes, spec, "SUM")
        trace = levels(cluster).run([case]).trace
        machine = two_level(k, g, inner, outer, flops=math.inf, memory_bandwidth=math.inf)
        took, ranks, nbytes = trace.on(machine).makespan, k * g, nbytes_of(spec)
        flat = ring_seconds(ranks, nbytes, outer)
        formula = ring_seconds(g, nbytes, inner) + ring_seconds(k, nbytes / g, outer)
        metrics.setdefault("flat_ring_over_hierarchical", round(flat / took, 2))
        if took > 0.9 * flat:
            raise CheckFailed(
                f"{case.label}: {took * 1e6:.0f} µs of virtual time, expected less than 0.9 × the "
                f"{flat * 1e6:.0f} of a flat ring (the two-level formula gives "
                f"{formula * 1e6:.0f})",
                cause="what crosses between nodes is as much, or as often, as in a flat ring",
            )


def ring_seconds(ranks: int, nbytes: float, link: LinkSpec) -> float:
    """α-β time of a ring all-reduce whose slowest link is `link`."""
    transfers = nbytes / ranks / link.bandwidth
    return 2 * (ranks - 1) * (link.latency + transfers)
