"""Checks of assignment 2: all-reduce on rings, hypercubes and two levels of a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from grader.checks import a2_volume as volume
from grader.checks.a1_cases import Spec, random_tensor, refusal
from grader.checks.a2_cases import (
    CHUNKS,
    FLOAT,
    REDUCTIONS,
    WORLDS,
    all_gather_case,
    all_reduce_case,
    all_reduce_refusals,
    deal,
    hierarchical_case,
    lengths,
    op_refusals,
    reduce_scatter_case,
)
from grader.checks.a2_throughput import keeps_up
from grader.checks.a2_volume import Run
from grader.checks.causes import Bench, Case
from grader.checks.framework import check
from grader.checks.throughput import Throughput
from grader.checks.world import SimulatedCluster

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
Metrics = dict[str, Any]
Make = Callable[..., Case]


def bench(cluster: Cluster, task: str) -> Bench:
    """Runs cases of a task around one group."""
    return Bench(cluster, f"a2.{task}", "a1:collective")


# ring_reduce_scatter, ring_all_gather -----------------------------------------------------------


def chunk_maker(rng: Rng, task: str) -> Make:
    """How to make cases of one of the halves, from the spec of a chunk."""
    if task == "ring_reduce_scatter":
        return partial(reduce_scatter_case, rng)
    return lambda world, ranks, spec, op: all_gather_case(rng, world, ranks, spec)


def half_values(cluster: Cluster, rng: Rng, task: str) -> None:
    cases = deal(chunk_maker(rng, task), CHUNKS, WORLDS)
    bench(cluster, task).run_all(cases, schedules=2)


def half_peers(cluster: Cluster, rng: Rng, task: str) -> None:
    def judge(run: Run) -> None:
        volume.around_the_ring(run.trace, run.members)

    volume.count(bench(cluster, task), chunk_maker(rng, task), judge)


def half_traffic(cluster: Cluster, rng: Rng, task: str, metrics: Metrics) -> None:
    def judge(run: Run) -> None:
        steps = run.size - 1
        rule = f"n - 1 = {steps} chunks of {run.nbytes} bytes"
        limit = steps * run.nbytes
        volume.at_most(run, limit, rule, run.size * run.nbytes, limit)
        volume.rounds_at_most(run.trace, steps, "n - 1")
        metrics.setdefault("bytes_per_rank", run.most_sent)
        metrics.setdefault("allowed_bytes_per_rank", limit)

    volume.count(bench(cluster, task), chunk_maker(rng, task), judge)


@check("a2.ring_reduce_scatter", 5, "reduces chunk i onto rank i, and leaves its input alone")
def test_reduce_scatter_values(cluster: Cluster, rng: Rng) -> None:
    half_values(cluster, rng, "ring_reduce_scatter")


@check("a2.ring_reduce_scatter", 1, "refuses wrong arguments on every rank")
def test_reduce_scatter_refusals(cluster: Cluster, rng: Rng) -> None:
    def wrong(rows: int) -> Case:
        inputs = [random_tensor(rng, (FLOAT, (rows,), False)) for _ in range(3)]
        arguments = [{"output": torch.zeros(3), "tensor": tensor} for tensor in inputs]
        label = f"tensor ({rows},) for output (3,) on 3 ranks"
        return refusal(label, arguments, ["tensor|output", str(rows), "3"], op="SUM")

    outputs = [torch.zeros(2, dtype=torch.int64) for _ in range(3)]
    cases = [wrong(10), wrong(6), *op_refusals(rng, 3, each=[{"output": out} for out in outputs])]
    bench(cluster, "ring_reduce_scatter").run_all(cases)


@check("a2.ring_reduce_scatter", 2, "sends to the next rank only")
def test_reduce_scatter_peers(cluster: Cluster, rng: Rng) -> None:
    half_peers(cluster, rng, "ring_reduce_scatter")


@check("a2.ring_reduce_scatter", 4, "sends n - 1 chunks in n - 1 rounds")
def test_reduce_scatter_traffic(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    half_traffic(cluster, rng, "ring_reduce_scatter", metrics)


@check("a2.ring_all_gather", 5, "puts every rank's chunk in its place")
def test_all_gather_values(cluster: Cluster, rng: Rng) -> None:
    half_values(cluster, rng, "ring_all_gather")


@check("a2.ring_all_gather", 1, "refuses wrong arguments on every rank")
def test_all_gather_refusals(cluster: Cluster, rng: Rng) -> None:
    def wrong(rows: int) -> Case:
        tensors = [random_tensor(rng, (FLOAT, (4,), False)) for _ in range(3)]
        arguments = [{"output": torch.zeros(rows), "tensor": tensor} for tensor in tensors]
        label = f"output ({rows},) for tensor (4,) on 3 ranks"
        return refusal(label, arguments, ["output|tensor", str(rows), "4"])

    bench(cluster, "ring_all_gather").run_all([wrong(13), wrong(8)])


@check("a2.ring_all_gather", 2, "sends to the next rank only")
def test_all_gather_peers(cluster: Cluster, rng: Rng) -> None:
    half_peers(cluster, rng, "ring_all_gather")


@check("a2.ring_all_gather", 4, "sends n - 1 chunks in n - 1 rounds")
def test_all_gather_traffic(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    half_traffic(cluster, rng, "ring_all_gather", metrics)


def reduces(cluster: Cluster, rng: Rng, task: str, more: Sequence[Case] = ()) -> None:
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


def ring_peers(cluster: Cluster, rng: Rng, task: str, **options: Any) -> None:
    def judge(run: Run) -> None:
        volume.around_the_ring(run.trace, run.members)

    volume.count(bench(cluster, task), partial(all_reduce_case, rng, **options), judge)


def ring_bytes(cluster: Cluster, rng: Rng, task: str, metrics: Metrics, **options: Any) -> None:
    def judge(run: Run) -> None:
        elements = 2 * (run.size - 1) * math.ceil(run.length / run.size)
        rule = f"2 (n - 1) ⌈N / n⌉ = {elements} elements of {run.itemsize} bytes"
        limit = elements * run.itemsize
        volume.at_most(run, limit, rule, run.nbytes, run.optimum)
        metrics.setdefault("bytes_per_rank", run.most_sent)
        metrics.setdefault("allowed_bytes_per_rank", limit)

    volume.count(bench(cluster, task), partial(all_reduce_case, rng, **options), judge)


@check("a2.ring_all_reduce", 7.5, "reduces on every rank")
def test_ring_values(cluster: Cluster, rng: Rng) -> None:
    reduces(cluster, rng, "ring_all_reduce")


@check("a2.ring_all_reduce", 2, "leaves the same bits on every rank")
def test_ring_bits(cluster: Cluster, rng: Rng) -> None:
    same_bits(cluster, rng, "ring_all_reduce")


@check("a2.ring_all_reduce", 1.5, "refuses wrong arguments on every rank")
def test_ring_refusals(cluster: Cluster, rng: Rng) -> None:
    bench(cluster, "ring_all_reduce").run_all([*op_refusals(rng, 3), *all_reduce_refusals(3)])


@check("a2.ring_all_reduce", 2.5, "sends to the next rank only")
def test_ring_peers(cluster: Cluster, rng: Rng) -> None:
    ring_peers(cluster, rng, "ring_all_reduce")


@check("a2.ring_all_reduce", 3.5, "sends no more than a ring must")
def test_ring_bytes(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    ring_bytes(cluster, rng, "ring_all_reduce", metrics)


@check("a2.ring_all_reduce", 2.5, "needs no more than 2 (n - 1) rounds")
def test_ring_rounds(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    def judge(run: Run) -> None:
        volume.rounds_at_most(run.trace, 2 * (run.size - 1), "2 (n - 1)")
        metrics.setdefault("rounds", run.trace.rounds)

    volume.count(bench(cluster, "ring_all_reduce"), partial(all_reduce_case, rng), judge)


@check("a2.ring_all_reduce", 6.5, "keeps up with the library's all-reduce")
def test_ring_throughput(throughput: Throughput) -> None:
    keeps_up(throughput, "a2.ring_all_reduce")


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
    reduces(cluster, rng, "pipelined_ring_all_reduce", segments)


@check("a2.pipelined_ring_all_reduce", 0.5, "leaves the same bits on every rank")
def test_pipelined_bits(cluster: Cluster, rng: Rng) -> None:
    same_bits(cluster, rng, "pipelined_ring_all_reduce", segment_bytes=8)


@check("a2.pipelined_ring_all_reduce", 0.5, "refuses wrong arguments on every rank")
def test_pipelined_refusals(cluster: Cluster, rng: Rng) -> None:
    def wrong(segment_bytes: int) -> Case:
        inputs = [random_tensor(rng, (FLOAT, (8,), False)) for _ in range(3)]
        arguments = [{"tensor": tensor, "segment_bytes": segment_bytes} for tensor in inputs]
        names = ["segment_bytes", str(segment_bytes)]
        return refusal(f"segment_bytes={segment_bytes}", arguments, names, op="SUM")

    cases = [*op_refusals(rng, 3), *all_reduce_refusals(3), wrong(0), wrong(-4)]
    bench(cluster, "pipelined_ring_all_reduce").run_all(cases)


@check("a2.pipelined_ring_all_reduce", 1, "sends to the next rank only")
def test_pipelined_peers(cluster: Cluster, rng: Rng) -> None:
    ring_peers(cluster, rng, "pipelined_ring_all_reduce", segment_bytes=64)


@check("a2.pipelined_ring_all_reduce", 1.5, "sends no more than a ring must")
def test_pipelined_bytes(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    ring_bytes(cluster, rng, "pipelined_ring_all_reduce", metrics, segment_bytes=64)


@check("a2.pipelined_ring_all_reduce", 3, "hides the reduction behind the transfer")
def test_pipelined_overlap(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    segments, segment_bytes = 16, 1024
    for world in (4, 3):
        chunk_bytes = segments * segment_bytes
        spec: Spec = (FLOAT, (world * chunk_bytes // FLOAT.itemsize,), False)
        case = all_reduce_case(rng, world, None, spec, "SUM", segment_bytes=segment_bytes)
        trace = bench(cluster, "pipelined_ring_all_reduce").run([case], compute=True).trace
        judge = partial(volume.reduction_is_hidden, trace, world, chunk_bytes, metrics)
        volume.about(case, judge)


@check("a2.pipelined_ring_all_reduce", 3, "keeps up with the library's all-reduce")
def test_pipelined_throughput(throughput: Throughput) -> None:
    keeps_up(throughput, "a2.pipelined_ring_all_reduce")


@check("a2.halving_doubling_all_reduce", 4, "reduces on every rank")
def test_halving_values(cluster: Cluster, rng: Rng) -> None:
    spec: Spec = (FLOAT, (10,), False)
    more = [all_reduce_case(rng, world, None, spec, "AVG") for world in (6, 7)]
    reduces(cluster, rng, "halving_doubling_all_reduce", more)


@check("a2.halving_doubling_all_reduce", 1, "leaves the same bits on every rank")
def test_halving_bits(cluster: Cluster, rng: Rng) -> None:
    same_bits(cluster, rng, "halving_doubling_all_reduce")


@check("a2.halving_doubling_all_reduce", 1, "refuses wrong arguments on every rank")
def test_halving_refusals(cluster: Cluster, rng: Rng) -> None:
    bench(cluster, "halving_doubling_all_reduce").run_all(
        [*op_refusals(rng, 3), *all_reduce_refusals(3)]
    )


@check("a2.halving_doubling_all_reduce", 3.5, "needs 2 ⌊log₂ n⌋ rounds, and 2 more at most")
def test_halving_rounds(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    def judge(run: Run) -> None:
        bits, extra = bits_and_extra(run.size)
        rule = "2 ⌊log₂ n⌋" + ", and 2 since n is no power of two" * extra
        volume.rounds_at_most(run.trace, 2 * bits + 2 * extra, rule)
        metrics.setdefault("rounds", run.trace.rounds)

    runner = bench(cluster, "halving_doubling_all_reduce")
    volume.count(runner, partial(all_reduce_case, rng), judge)


@check("a2.halving_doubling_all_reduce", 2.5, "sends halves, then quarters, and so on")
def test_halving_bytes(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    def judge(run: Run) -> None:
        bits, extra = bits_and_extra(run.size)
        halves = sum(math.ceil(run.length / 2**k) for k in range(1, bits + 1))
        limit = 2 * halves + extra * run.length
        rule = "2 (⌈N/2⌉ + ⌈N/4⌉ + …)" + " + N, since n is no power of two" * extra
        rule += f" = {limit} elements of {run.itemsize} bytes"
        volume.at_most(run, limit * run.itemsize, rule, run.nbytes, run.optimum)
        metrics.setdefault("bytes_per_rank", run.most_sent)
        metrics.setdefault("allowed_bytes_per_rank", limit * run.itemsize)

    runner = bench(cluster, "halving_doubling_all_reduce")
    volume.count(runner, partial(all_reduce_case, rng), judge)


def bits_and_extra(ranks: int) -> tuple[int, bool]:
    """⌊log₂ n⌋, and whether n is more than that power of two."""
    bits = ranks.bit_length() - 1
    return bits, ranks != 1 << bits


# hierarchical_all_reduce ------------------------------------------------------------------------


def levels(cluster: Cluster) -> Bench:
    """Runs cases of `hierarchical_all_reduce`."""
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
    nodes = [{"nodes": [[0, 1], [2, 3]]} for _ in range(4)]
    levels(cluster).run_all([*op_refusals(rng, 4, each=nodes), *all_reduce_refusals(4, nodes)])


@check("a2.hierarchical_all_reduce", 3, "sends no more between nodes than it must")
def test_hierarchical_bytes(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    for nodes in NODES:
        for dtype, length in ((torch.float32, 1001), (torch.bfloat16, 96)):
            case = hierarchical_case(rng, nodes, (dtype, (length,), False), "SUM")
            sent = volume.node_traffic(levels(cluster).run([case]).trace, nodes)
            shape = (length, len(nodes), len(nodes[0]), dtype.itemsize)
            volume.about(case, partial(volume.between_nodes_at_most, sent, *shape))
            metrics.setdefault("bytes_between_nodes", max(sent))


@check("a2.hierarchical_all_reduce", 2, "lets every GPU take part between the nodes")
def test_hierarchical_participation(cluster: Cluster, rng: Rng) -> None:
    for nodes in NODES[:4]:
        case = hierarchical_case(rng, nodes, (FLOAT, (120,), False), "SUM")
        sent = volume.node_traffic(levels(cluster).run([case]).trace, nodes)
        volume.about(case, partial(volume.all_take_part, sent))


@check("a2.hierarchical_all_reduce", 3, "beats the flat ring where the formula says so")
def test_hierarchical_time(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    length = 1 << 13
    for k, g, preset in ((2, 4, ""), (4, 2, ""), (2, 8, "dgx-h100")):
        nodes = [list(range(node * g, node * g + g)) for node in range(k)]
        case = hierarchical_case(rng, nodes, (FLOAT, (length,), False), "SUM")
        trace = levels(cluster).run([case]).trace
        judge = partial(volume.faster_than_a_flat_ring, trace, k, g, 4 * length, metrics, preset)
        volume.about(case, judge)
