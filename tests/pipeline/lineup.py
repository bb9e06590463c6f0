"""Every schedule of the reference by name, and a model that is compared with its unsplit self."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from grader.checks import pipeline_models as models
from reference.a6_pipeline_parallel import schedule as given
from reference.a6_pipeline_parallel.executor import run_schedule
from reference.a6_pipeline_parallel.schedules import (
    gpipe_schedule,
    interleaved_schedule,
    one_f_one_b_schedule,
    zero_bubble_schedule,
)
from reference.a6_pipeline_parallel.stage import PipelineStage
from reference.a7_dualpipe.executor import run_dualpipe
from reference.a7_dualpipe.schedules import dualpipe_schedule, dualpipev_schedule

COSTS = ((1, 1, 1, 3), (1, 1, 1, 2.5), (1, 1, 1, 2), (1, 1.2, 0.8, 2.7))


class Entry(NamedTuple):
    """One schedule: how it is made of (ranks, micro-batches), its stages, placement, executor."""

    make: Callable[[int, int], given.Schedule]
    stages: Callable[[int], int]
    placement: Callable[[int, int], given.Placement]
    run: Callable[..., torch.Tensor | None]


def _in_line(ranks: int, microbatches: int) -> given.Placement:
    return given.in_line


LINEUP: dict[str, Entry] = {
    "gpipe": Entry(gpipe_schedule, lambda p: p, _in_line, run_schedule),
    "1f1b": Entry(one_f_one_b_schedule, lambda p: p, _in_line, run_schedule),
    "interleaved": Entry(
        lambda p, m: interleaved_schedule(p, m, 2),
        lambda p: 2 * p,
        lambda p, m: given.round_robin(p),
        run_schedule,
    ),
    "zb1p": Entry(zero_bubble_schedule, lambda p: p, _in_line, run_schedule),
    "dualpipe": Entry(dualpipe_schedule, lambda p: p, given.both_ways, run_dualpipe),
    "dualpipev": Entry(
        dualpipev_schedule, lambda p: 2 * p, lambda p, m: given.folded(p), run_dualpipe
    ),
}


def homes_of(schedule: given.Schedule) -> dict[tuple[int, int], int]:
    """The rank of every chunk (stage, micro-batch)."""
    return {
        (action.stage, action.microbatch): rank
        for rank, steps in enumerate(schedule)
        for step in steps
        for action in given.actions_of(step)
    }


def model_of(stages: int, name: str) -> list[nn.Module]:
    """The stages of a model, the same on every rank."""
    generator = torch.Generator().manual_seed(5)
    return [models.build(name, models.random_state(name, generator)) for _ in range(stages)]


def batch_of(microbatches: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Inputs and targets, the same on every rank."""
    generator = torch.Generator().manual_seed(7)
    shape = (3, models.WIDTH)
    values = [
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for _ in range(2 * microbatches)
    ]
    return values[:microbatches], values[microbatches:]


def largest_error(
    schedule: given.Schedule,
    run: Callable[..., torch.Tensor | None],
    rank: int,
    *,
    model: str = "perceptron",
    rounds: int = 2,
    group: dist.ProcessGroup | None = None,
) -> float:
    """Run on this rank, and compare loss and gradients with the unsplit model's.

    The error relative to the largest gradient of the model, or of the loss, whichever is larger.
    """
    stages, microbatches = given.count_chunks(schedule)
    homes = homes_of(schedule)
    inputs, targets = batch_of(microbatches)
    mine = sorted({stage for (stage, _), home in homes.items() if home == rank})
    modules = model_of(stages, model)
    parts = {stage: PipelineStage(modules[stage]) for stage in mine}

    def entries(stage: int, values: Sequence[torch.Tensor]) -> list[Any] | None:
        found = [v if homes[stage, i] == rank else None for i, v in enumerate(values)]
        return found if stage in mine else None

    whole = model_of(stages, model)
    error = 0.0
    for _ in range(rounds):
        expected = torch.zeros((), dtype=torch.float64)
        for x, y in zip(inputs, targets, strict=True):
            for stage in whole:
                x = stage(x)
            expected = expected + models.mean_square(x, y) / microbatches
        expected.backward()
        loss = run(
            schedule,
            parts,
            entries(0, inputs),
            entries(stages - 1, targets),
            models.mean_square,
            group,
        )
        assert (loss is None) == (stages - 1 not in mine)
        if loss is not None:
            error = max(error, float((loss - expected.detach()).abs()))
    gradients = [p.grad for stage in whole for p in stage.parameters()]
    largest = max(float(g.abs().max()) for g in gradients if g is not None)
    for stage in mine:
        for got, wanted in zip(modules[stage].parameters(), whole[stage].parameters(), strict=True):
            assert got.grad is not None and wanted.grad is not None
            error = max(error, float((got.grad - wanted.grad).abs().max()) / largest)
    return error
