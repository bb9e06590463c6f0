"""Cases of the overlapped products, and what they take on the virtual clock."""

from __future__ import annotations

import math
from typing import Any

import torch

from grader.checks import a4_volume as volume
from grader.checks.a5_cases import CallCase, product, run
from grader.checks.a5_judges import judge_product
from grader.checks.framework import CheckFailed
from grader.checks.world import SimulatedCluster
from grader.fabric.cluster import uniform

MATMUL_RS, AG_MATMUL = "a5.matmul_reduce_scatter", "a5.all_gather_matmul"
PRODUCTS = (MATMUL_RS, AG_MATMUL)


def products(task: str, rng: torch.Generator, world: int, *ranks: Any, **more: Any) -> CallCase:
    """A case of a task, judged."""
    case = product(rng, task == MATMUL_RS, world, *ranks, **more)
    case.judge = judge_product
    return case


def judge_overlap(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> dict[str, Any]:
    """1.5 times faster than one after the other, where both take as long; no more bytes."""
    metrics: dict[str, Any] = {}
    world = 4
    inner, columns = (64, 64)
    case = products(
        task, rng, world, rows=32, inner=inner, columns=columns, gradient=False, label="overlap"
    )
    outcome = run(cluster, task, [case], compute=True)
    a, b = case.tensors[0]
    rows = a.shape[0] if task == MATMUL_RS else a.shape[0] * world
    flops = 2 * rows * a.shape[1] * b.shape[1]
    whole = (rows * b.shape[1] if task == MATMUL_RS else rows * a.shape[1]) * 8
    parts = 0
    kind = "reduce_scatter" if task == MATMUL_RS else "all_gather"
    nbytes = volume.moved(kind, whole, world)
    for rank, (answer,) in enumerate(outcome.outputs):
        forward, _ = volume.phases(outcome.trace, rank, answer["marks"])
        parts = len(forward)
        metrics["bytes_sent"] = volume.expect_phase(
            forward, world, nbytes + 64, f"{case.label}: rank {rank}", f"what one {kind} sends"
        )
    # A second for each: no latency, and memory that is free.
    cluster_of_equals = uniform(
        world, 0.0, float(nbytes), flops=float(flops), memory_bandwidth=math.inf
    )
    makespan = outcome.trace.on(cluster_of_equals).makespan
    metrics["speedup_over_serial"] = round(2 / makespan, 3)
    if 2 / makespan < 1.5:
        raise CheckFailed(
            f"{world} ranks, product and {kind} of one second each: {makespan:.3f} s, expected at "
            f"most {2 / 1.5:.3f} s (1.5 times faster than one after the other)",
            cause="each part is waited for before the next one is begun, or the parts are too large"
            if parts > 1
            else "the product and the collective run one after the other, each in one piece",
        )
    return metrics
