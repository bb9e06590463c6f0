"""Checks of `a6.run_schedule`: whole pipelines, run by the student's executor."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grader.checks.framework import check
from grader.checks.pipeline_cases import judge_pipeline, make_batch, rank_inputs
from grader.checks.pipeline_plans import greedy_plan, in_line
from grader.checks.pipeline_runs import SHAPES, expect_time, gpipe_like, judge_copies
from grader.checks.pipeline_throughput import keeps_up
from grader.checks.throughput import Throughput
from grader.checks.world import SimulatedCluster

TASK = "a6.run_schedule"


@check(TASK, points=6, name="gives the loss and gradients of the unsplit model")
@pytest.mark.parametrize(
    ("ranks", "microbatches", "names"),
    [(1, 3, ["block"]), (2, 4, ["block"] * 2), (4, 6, ["perceptron"] * 4), (3, 2, ["block"] * 3)],
)
def test_gradients_equal_the_unsplit_models(
    cluster: SimulatedCluster, rng: torch.Generator, ranks: int, microbatches: int, names: list[str]
) -> None:
    batch = make_batch(rng, names, microbatches, rounds=1)
    for plan in (
        gpipe_like(ranks, microbatches),
        greedy_plan(f"{ranks} ranks, backwards first", ranks, ranks, microbatches, in_line),
    ):
        outputs, _ = cluster.run(
            "a6:pipeline", rank_inputs(plan, batch, TASK), task=TASK, allow=None
        )
        judge_pipeline(outputs, batch, plan)


@check(TASK, points=5, name="runs every valid schedule")
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("p2p", ["gloo", "nccl"])
def test_runs_every_valid_schedule(
    cluster: SimulatedCluster, rng: torch.Generator, number: int, p2p: Any
) -> None:
    label, ranks, stages, count, home = SHAPES[number]
    batch = make_batch(rng, ["perceptron"] * stages, count, rounds=1)
    seeds: tuple[int | None, ...] = (None, 1) if p2p == "gloo" else (2,)
    plans = [
        greedy_plan(
            f"{label}, backwards first" if seed is None else f"{label}, at random ({seed})",
            *(ranks, stages, count, home),
            seed=seed,
            split=seed != 2,
            pairs=True,
        )
        for seed in seeds
    ]
    for plan in plans:
        outputs, _ = cluster.run(
            "a6:pipeline", rank_inputs(plan, batch, TASK), task=TASK, allow=None, p2p=p2p
        )
        judge_copies(outputs, batch, plan)


@check(TASK, points=4, name="accumulates, and carries whatever stages exchange")
@pytest.mark.parametrize(
    ("names", "uneven", "ranks", "world"),
    [
        (["carry", "carry", "carry"], True, None, 3),
        (["embedding", "shared", "block", "no parameters"], True, None, 4),
        (["block", "in place", "partly frozen"], False, [4, 0, 2], 5),
        (["partly frozen", "identity", "perceptron"], True, [2, 3, 1], 4),
    ],
)
def test_accumulates_over_calls(
    cluster: SimulatedCluster,
    rng: torch.Generator,
    names: list[str],
    uneven: bool,
    ranks: list[int] | None,
    world: int,
) -> None:
    batch = make_batch(rng, names, 5, rounds=2, uneven=uneven)
    label = f"stages {', '.join(names)}" + (f" on global ranks {ranks}" if ranks else "")
    plan = greedy_plan(label, len(names), len(names), 5, in_line, split=True)
    given = rank_inputs(plan, batch, TASK, rounds=2, ranks=ranks, world=world)
    outputs, _ = cluster.run("a6:pipeline", given, task=TASK, allow=None)
    judge_pipeline(outputs, batch, plan, ranks)


@check(TASK, points=3, name="takes the time that the schedule takes on paper")
@pytest.mark.parametrize("number", range(4))
def test_takes_the_time_of_the_schedule(
    cluster: SimulatedCluster, metrics: dict[str, Any], number: int
) -> None:
    label, ranks, stages, count, home = SHAPES[number]
    for split in (False, True):
        plan = greedy_plan(label, ranks, stages, count, home, split=split, pairs=not split)
        expect_time(cluster, metrics, plan, TASK)


@check(TASK, points=6, name="keeps up with torch's own pipeline")
def test_throughput(throughput: Throughput) -> None:
    keeps_up(throughput, TASK)
