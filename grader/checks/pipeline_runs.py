"""Pipelines run by a solution's executor: the shapes that are tried, and the time they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from grader.checks.framework import CheckFailed
from grader.checks.pipeline_cases import Batch, judge_pipeline
from grader.checks.pipeline_judge import COSTS, Home, Plan, Step, measure, step_text
from grader.checks.pipeline_plans import both_ways, folded, in_line, round_robin
from grader.checks.world import SimulatedCluster
from grader.fabric.cluster import uniform

#: (label, ranks, stages, micro-batches, placement) of the pipelines that are tried.
SHAPES: tuple[tuple[str, int, int, int, Home], ...] = (
    ("4 ranks in line", 4, 4, 5, in_line),
    ("2 ranks, 3 chunks each", 2, 6, 4, round_robin(2)),
    ("3 ranks, a V", 3, 6, 4, folded(3)),
    ("4 ranks, both ways", 4, 4, 8, both_ways(4, 8)),
    ("8 ranks, both ways", 8, 8, 8, both_ways(8, 8)),
)


def gpipe_like(ranks: int, microbatches: int) -> Plan:
    """All forwards, then all backwards."""
    steps: list[list[Step]] = [
        [((kind, rank, i),) for kind in "FB" for i in range(microbatches)] for rank in range(ranks)
    ]
    return Plan(f"{ranks} ranks, {microbatches} micro-batches, all F then all B", steps)


def judge_copies(outputs: Sequence[Any], batch: Batch, plan: Plan) -> None:
    """As `judge_pipeline`; where a stage has copies, their gradients are summed here.

    Each end has the mean loss of its own micro-batches: half of them.
    """
    copies: dict[str, list[int]] = {}
    for rank, answer in enumerate(outputs):
        for stage in answer["gradients"]:
            copies.setdefault(stage, []).append(rank)
    if all(len(ranks) == 1 for ranks in copies.values()):
        judge_pipeline(outputs, batch, plan)
        return
    for stage, ranks in copies.items():
        parts = [outputs[rank]["gradients"][stage] for rank in ranks]
        total = {
            name: sum(part[name] for part in parts)
            if all(p[name] is not None for p in parts)
            else None
            for name in parts[0]
        }
        for rank in ranks:
            outputs[rank]["gradients"][stage] = total
    last = str(len(batch.names) - 1)
    losses = [outputs[rank]["losses"] for rank in copies[last]]
    if any(len(each) != 1 or not isinstance(each[0], torch.Tensor) for each in losses):
        raise CheckFailed(f"{plan.label}: a rank with a last stage returned no loss")
    mean = torch.stack([each[0] for each in losses]).mean()
    for rank in copies[last]:
        outputs[rank]["losses"] = [mean]
    judge_pipeline(outputs, batch, plan)


def expect_time(cluster: SimulatedCluster, metrics: dict[str, Any], plan: Plan, task: str) -> None:
    """The makespan measured over linear stages is that on paper (F = I = W, FB = F + B) to 1 %."""
    width = 4096
    lines = [" ".join(map(step_text, steps)) for steps in plan.ranks]
    given = [
        {"task": task, "schedule": lines, "width": width} | each for each in driver_stages(plan)
    ]
    _, trace = cluster.run("a6:timed_pipeline", given, task=task, allow=None, compute=True)
    machine = uniform(
        len(plan.ranks), latency=0.0, bandwidth=1e30, flops=2 * width**3, memory_bandwidth=1e30
    )
    measured = trace.on(machine).makespan
    on_paper = measure(plan, COSTS[0]).makespan
    metrics[f"makespan, {plan.label}"] = measured
    if abs(measured - on_paper) > 0.01 * on_paper:
        raise CheckFailed(
            f"{plan.label}: on paper {on_paper:g}, measured {measured:.4g} (free communication)",
            cause="a receive is posted, or a send waited for, later than it could be"
            if measured > on_paper
            else "not everything that the schedule lists was computed",
        )


def driver_stages(plan: Plan) -> list[dict[str, Any]]:
    """Per rank: its stages, and the micro-batches that enter and leave the pipeline there."""
    homes = {(stage, i): rank for rank, _, (kind, stage, i) in plan.actions() if kind == "F"}
    last = max(stage for stage, _ in homes)
    count = 1 + max(i for _, i in homes)
    return [
        {
            "microbatches": count,
            "stages": sorted({stage for (stage, _), home in homes.items() if home == rank}),
            "entering": [i for i in range(count) if homes[0, i] == rank],
            "leaving": [i for i in range(count) if homes[last, i] == rank],
        }
        for rank in range(len(plan.ranks))
    ]
