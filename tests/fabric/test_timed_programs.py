"""Real programs, recorded and replayed, against what arithmetic says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from grader.fabric import simulate
from grader.fabric.cluster import uniform
from grader.fabric.trace import Trace
from reference.a1_collectives.collectives import (
    all_reduce_pairwise,
    all_reduce_parameter_server,
    broadcast,
    reduce,
)
from reference.a2_ring_all_reduce.ring import ring_all_reduce
from reference.a2_ring_all_reduce.tree import halving_doubling_all_reduce

ALPHA, BANDWIDTH = 5e-6, 50e9
NBYTES = 64 << 20


def makespan(program: Callable[[], Any], ranks: int, **options: Any) -> float:
    """Virtual time of a program on meta tensors at no cost of computation."""
    result = simulate(lambda rank, _: program(), ranks, compute=True, **options)
    assert not result.findings, result.findings[0].message
    machine = uniform(ranks, ALPHA, BANDWIDTH, flops=math.inf, memory_bandwidth=math.inf)
    timed = Trace(result.record).on(machine)
    assert timed.timeline.complete
    return timed.makespan


def vector() -> torch.Tensor:
    return torch.empty(NBYTES // 4, device="meta")


def exchange(tensor: torch.Tensor, peer: int) -> None:
    got = torch.empty_like(tensor)
    ops = [dist.P2POp(dist.isend, tensor, peer), dist.P2POp(dist.irecv, got, peer)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    tensor.add_(got)


def recursive_doubling() -> None:
    tensor, rank, distance = vector(), dist.get_rank(), 1
    while distance < dist.get_world_size():
        exchange(tensor, rank ^ distance)
        distance *= 2


def stepwise_pairwise() -> None:
    tensor, rank, size = vector(), dist.get_rank(), dist.get_world_size()
    for step in range(1, size):
        got = torch.empty_like(tensor)
        ops = [
            dist.P2POp(dist.isend, tensor, (rank + step) % size),
            dist.P2POp(dist.irecv, got, (rank - step) % size),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()


def binomial() -> None:
    tensor = vector()
    reduce(tensor, 0)
    broadcast(tensor, 0)


def log2(ranks: int) -> int:
    return ranks.bit_length() - 1


@pytest.mark.parametrize("ranks", [8, 64])
@pytest.mark.parametrize(
    ("program", "alphas", "betas"),
    [
        (lambda: ring_all_reduce(vector()), lambda p: 2 * (p - 1), lambda p: 2 * (p - 1) / p),
        (
            lambda: halving_doubling_all_reduce(vector()),
            lambda p: 2 * log2(p),
            lambda p: 2 * (p - 1) / p,
        ),
        (stepwise_pairwise, lambda p: p - 1, lambda p: p - 1),
        (
            lambda: all_reduce_parameter_server(vector()),
            lambda p: 2,
            lambda p: 2 * (p - 1),
        ),
        (recursive_doubling, log2, log2),
        (binomial, lambda p: 2 * log2(p), lambda p: 2 * log2(p)),
    ],
    ids=["ring", "halving_doubling", "pairwise", "server", "doubling", "binomial"],
)
def test_all_reduce_of_64_mib_takes_the_time_of_its_formula(
    program: Callable[[], Any],
    alphas: Callable[[int], float],
    betas: Callable[[int], float],
    ranks: int,
) -> None:
    expected = alphas(ranks) * ALPHA + betas(ranks) * NBYTES / BANDWIDTH
    assert makespan(program, ranks) == pytest.approx(expected, rel=0.01)


def test_all_pairs_posted_at_once_share_one_latency() -> None:
    taken = makespan(lambda: all_reduce_pairwise(vector()), 8)
    assert taken == pytest.approx(ALPHA + 7 * NBYTES / BANDWIDTH, rel=0.01)


def test_twenty_schedules_give_one_time() -> None:
    """Contention, sub-groups and computation included."""

    def program() -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        tensor = torch.empty(1 << 16, device="meta")
        works = [dist.isend(tensor, 0)] if rank else []
        for source in range(1, size) if rank == 0 else ():
            works.append(dist.irecv(torch.empty_like(tensor), source))
        (tensor * rank).sum()
        for work in works:
            work.wait()
        ring_all_reduce(tensor)
        half = dist.new_group(
            [0, 2, 4] if rank % 2 == 0 else [1, 3, 5], use_local_synchronization=True
        )
        dist.all_reduce(tensor, group=half)

    times = {makespan(program, 6, schedule=schedule) for schedule in (None, *range(20))}
    assert len(times) == 1


def test_any_source_is_marked_order_dependent() -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            dist.recv(torch.empty(1))
        else:
            dist.send(torch.ones(1), 0)

    assert simulate(lambda rank, _: program(), 2).record.order_dependent
    assert not simulate(lambda rank, _: dist.barrier(), 2).record.order_dependent


@pytest.mark.parametrize("chunks", [1, 2, 4, 8])
def test_products_and_sends_of_equal_cost_overlap_as_arithmetic_says(chunks: int) -> None:
    """Rank 0 multiplies chunk by chunk and sends each: c products, the last transfer in the open.

    One product of (n/c × k) by (k × m) at F FLOP/s takes as long as its result's transfer at
    1 / β bytes/s: 2 k / F = 4 β, so T = (1 + 1/c) times one of them (no latency).
    """
    rows, inner, columns = 64, 128, 32
    bandwidth = 1e9
    flops = 2 * inner / (4 / bandwidth)

    def program() -> None:
        right = torch.empty(inner, columns, device="meta")
        if dist.get_rank() == 0:
            left = torch.empty(rows, inner, device="meta")
            works = [dist.isend(part @ right, 1) for part in left.chunk(chunks)]
        else:
            out = torch.empty(rows, columns, device="meta")
            works = [dist.irecv(part, 0) for part in out.chunk(chunks)]
        for work in works:
            work.wait()

    result = simulate(lambda rank, _: program(), 2, compute=True)
    machine = uniform(2, 0.0, bandwidth, flops=flops, memory_bandwidth=math.inf)
    timed = Trace(result.record).on(machine)
    whole = 4 * rows * columns / bandwidth
    assert timed.makespan == pytest.approx(whole * (1 + 1 / chunks), rel=0.01)
    assert timed.overlap(0) == pytest.approx(whole * (1 - 1 / chunks), rel=0.01, abs=1e-12)
