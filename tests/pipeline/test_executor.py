"""The reference's executors on the simulated cluster."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch

from grader.checks.pipeline_judge import step_text
from grader.checks.pipeline_plans import both_ways, folded, greedy_plan, in_line, round_robin
from grader.fabric import simulate
from grader.fabric.clock import replay
from grader.fabric.cluster import uniform
from reference.a6_pipeline_parallel.executor import run_schedule
from reference.a6_pipeline_parallel.schedule import Schedule, count_chunks, parse_schedule
from reference.a6_pipeline_parallel.stage import PipelineStage
from reference.a6_pipeline_parallel.timeline import time_schedule

from .lineup import LINEUP, Entry, homes_of, largest_error


def simulated(size: int, body: Any, **options: Any) -> Any:
    result = simulate(body, size, **options)
    assert not result.findings, result.findings[0].message
    assert not result.warnings, result.warnings[0].message
    return result


SIZES = {
    "gpipe": [(2, 3), (4, 6), (8, 9)],
    "1f1b": [(2, 1), (3, 5), (4, 2), (8, 12)],
    "interleaved": [(2, 4), (4, 8), (8, 8)],
    "zb1p": [(2, 3), (4, 2), (4, 9), (8, 10)],
    "dualpipe": [(2, 4), (4, 10), (8, 16)],
    "dualpipev": [(2, 5), (4, 8), (8, 16)],
}
CASES = [(name, p, m) for name, sizes in SIZES.items() for p, m in sizes]


@pytest.mark.parametrize("p2p", ["gloo", "nccl"])
@pytest.mark.parametrize(("name", "p", "m"), CASES)
def test_loss_and_gradients_equal_the_unsplit_models(
    name: str, p: int, m: int, p2p: Literal["gloo", "nccl"]
) -> None:
    entry = LINEUP[name]
    schedule = entry.make(p, m)
    result = simulated(p, lambda rank, _: largest_error(schedule, entry.run, rank), p2p=p2p)
    assert max(result.returns) <= 1e-10


@pytest.mark.parametrize("name", LINEUP)
def test_transformer_blocks_with_split_backwards(name: str) -> None:
    entry = LINEUP[name]
    schedule = entry.make(2, 4)
    result = simulated(2, lambda rank, _: largest_error(schedule, entry.run, rank, model="block"))
    assert max(result.returns) <= 1e-10


@pytest.mark.parametrize("name", LINEUP)
def test_measured_makespan_is_that_on_paper(name: str) -> None:
    for p, m in ((2, 4), (4, 8), (8, 16)):
        schedule = LINEUP[name].make(p, m)
        measured = measured_makespan(schedule, LINEUP[name], p)
        assert measured == pytest.approx(time_schedule(schedule).makespan, rel=0.01)


def measured_makespan(schedule: Schedule, entry: Entry, ranks: int) -> float:
    """Over bias-free linear stages at zero latency; a unit is the time of one product."""
    width, microbatches = 4096, count_chunks(schedule)[1]
    homes = homes_of(schedule)

    def body(rank: int, _: object) -> None:
        mine = sorted({stage for (stage, _), home in homes.items() if home == rank})
        with torch.device("meta"):
            parts = {s: PipelineStage(torch.nn.Linear(width, width, bias=False)) for s in mine}
            # Inputs that require gradients: else the first stage would have no I to compute.
            inputs = [torch.empty(width, width, requires_grad=True) for _ in range(microbatches)]
            targets = [torch.empty(width, width) for _ in range(microbatches)]
        entry.run(schedule, parts, inputs, targets, lambda y, t: (y * t).sum())

    record = simulated(ranks, body, compute=True).record
    machine = uniform(ranks, 0.0, 1e30, flops=2 * width**3, memory_bandwidth=1e30)
    return replay(record, machine).makespan


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("p2p", ["gloo", "nccl"])
def test_any_valid_schedule_runs(seed: int, p2p: Literal["gloo", "nccl"]) -> None:
    for ranks, stages, count, home in (
        (3, 3, 4, in_line),
        (2, 4, 3, round_robin(2)),
        (3, 6, 3, folded(3)),
    ):
        plan = greedy_plan(
            "", ranks, stages, count, home, seed=seed, split=seed % 2 == 0, pairs=seed % 3 > 0
        )
        text = "\n".join(" ".join(map(step_text, steps)) for steps in plan.ranks)
        schedule = parse_schedule(text)
        result = simulated(
            ranks,
            lambda rank, _, s=schedule: largest_error(s, run_schedule, rank, rounds=1),
            p2p=p2p,
        )
        assert max(result.returns) <= 1e-10


@pytest.mark.parametrize("seed", range(4))
def test_any_two_way_schedule_runs(seed: int) -> None:
    plan = greedy_plan("", 4, 4, 8, both_ways(4, 8), seed=seed, split=seed % 2 == 0, pairs=True)
    text = "\n".join(" ".join(map(step_text, steps)) for steps in plan.ranks)
    schedule = parse_schedule(text)
    run = LINEUP["dualpipe"].run
    result = simulated(4, lambda rank, _: largest_error(schedule, run, rank), p2p="nccl")
    assert max(result.returns) <= 1e-10


def test_what_a_rank_lacks_is_named_before_anything_is_sent() -> None:
    schedule = LINEUP["1f1b"].make(2, 2)

    def body(rank: int, _: object) -> str:
        try:
            run_schedule(schedule, {}, None, None, lambda y, t: y)
        except ValueError as error:
            return str(error)
        return ""

    messages = simulated(2, body).returns
    assert messages == [f"stages: rank {r} is to run stage {r}, but has only []" for r in (0, 1)]


def test_a_schedule_for_another_world_is_refused() -> None:
    schedule = LINEUP["1f1b"].make(3, 2)
    result = simulate(lambda rank, _: run_schedule(schedule, {}, None, None, lambda y, t: y), 2)
    assert all("3 ranks, the group has 2" in error.message for error in result.errors.values())
    assert len(result.errors) == 2


def test_an_input_that_requires_a_gradient_gets_one() -> None:
    schedule = LINEUP["1f1b"].make(2, 1)

    def body(rank: int, _: object) -> torch.Tensor | None:
        x = torch.ones(2, 2, requires_grad=True)
        stage = PipelineStage(torch.nn.Identity())
        run_schedule(schedule, {rank: stage}, [x], [torch.tensor(3.0)], lambda y, t: (y * t).sum())
        return x.grad if rank == 0 else None

    gradient = simulated(2, body).returns[0]
    assert torch.equal(gradient, torch.full((2, 2), 3.0))
