"""torch.distributed.pipelining on simulated ranks, against one process that has the whole model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)

from tests.fabric.models import CLASSES, WIDTH, Block, adam, batches, train_alone
from tests.fabric.ranks import close, run

MICRO_BATCHES = 6
STEPS = 3


def parts(count: int) -> tuple[nn.Sequential, list[nn.Sequential]]:
    """A model of `count` blocks and a classifier, and its `count` stages (which share it)."""
    torch.manual_seed(7)
    blocks = [Block(WIDTH, 2 * WIDTH).double() for _ in range(count)]
    classifier = nn.Linear(WIDTH, CLASSES, dtype=torch.float64)
    whole = nn.Sequential(*blocks, classifier)
    stages = [nn.Sequential(block) for block in blocks[:-1]]
    return whole, [*stages, nn.Sequential(blocks[-1], classifier)]


def drive(rank: int, schedule: Any, stages: list[PipelineStage]) -> list[float]:
    """Train with the schedule; the losses on the rank that has the last stage, else none."""
    holder = nn.ModuleList([stage.submod for stage in stages])
    optimizer = adam(holder)
    losses = []
    for x, y in batches(STEPS):
        optimizer.zero_grad()
        micro_losses: list[torch.Tensor] = []
        first = any(stage.is_first for stage in stages)
        last = any(stage.is_last for stage in stages)
        schedule.step(
            *((x,) if first else ()),
            target=y if last else None,
            losses=micro_losses if last else None,
        )
        optimizer.step()
        if last:
            losses.append(torch.stack(micro_losses).mean().item())
    return losses


def agree(losses: list[float], stages: list[PipelineStage], count: int) -> None:
    """Losses where there are some, and the parameters of these stages, are one process's."""
    expected, alone = train_alone(STEPS, make=lambda: parts(count)[0])
    if losses:
        assert losses == pytest.approx(expected, rel=1e-10)
    assert isinstance(alone, nn.Sequential)
    for stage in stages:
        index = stage.stage_index
        reference = alone[index : index + 1] if not stage.is_last else alone[index:]
        for value, other in zip(stage.submod.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(value, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("compute", [False, True], ids=["", "compute"])
@pytest.mark.parametrize("kind", [ScheduleGPipe, Schedule1F1B])
@pytest.mark.parametrize("ranks", [2, 3])
def test_one_stage_per_rank(ranks: int, kind: Any, compute: bool) -> None:
    def program(rank: int, _: Any) -> None:
        module = parts(ranks)[1][rank]
        stage = PipelineStage(module, rank, ranks, torch.device("cpu"))
        schedule = kind(stage, MICRO_BATCHES, nn.functional.cross_entropy)
        losses = drive(rank, schedule, [stage])
        assert bool(losses) == (rank == ranks - 1)
        agree(losses, [stage], ranks)

    run(program, ranks, compute=compute)


@pytest.mark.parametrize("schedule", [1, 2])
def test_1f1b_under_another_order_of_the_ranks(schedule: int) -> None:
    def program(rank: int, _: Any) -> None:
        stage = PipelineStage(parts(3)[1][rank], rank, 3, torch.device("cpu"))
        agree(drive(rank, Schedule1F1B(stage, 6, nn.functional.cross_entropy), [stage]), [stage], 3)

    run(program, 3, schedule=schedule)


def test_1f1b_where_calls_run_in_nccls_order() -> None:
    def program(rank: int, _: Any) -> None:
        stage = PipelineStage(parts(3)[1][rank], rank, 3, torch.device("cpu"))
        agree(drive(rank, Schedule1F1B(stage, 6, nn.functional.cross_entropy), [stage]), [stage], 3)

    run(program, 3, p2p="nccl")


@pytest.mark.parametrize(
    "kind", [ScheduleLoopedBFS, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble]
)
def test_two_stages_per_rank(kind: Any) -> None:
    def program(rank: int, _: Any) -> None:
        modules = parts(4)[1]
        stages = [
            PipelineStage(modules[index], index, 4, torch.device("cpu"))
            for index in (rank, rank + 2)
        ]
        schedule = kind(stages, MICRO_BATCHES, nn.functional.cross_entropy)
        agree(drive(rank, schedule, stages), stages, 4)

    run(program, 2)


def test_zero_bubble_v() -> None:
    def program(rank: int, _: Any) -> None:
        modules = parts(4)[1]
        stages = [
            PipelineStage(modules[index], index, 4, torch.device("cpu"))
            for index in (rank, 3 - rank)
        ]
        schedule = ScheduleZBVZeroBubble(stages, MICRO_BATCHES, nn.functional.cross_entropy)
        agree(drive(rank, schedule, stages), stages, 4)

    run(program, 2)


def test_a_pipeline_within_each_of_two_data_parallel_replicas() -> None:
    def program(rank: int, _: Any) -> None:
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
        index = mesh.get_local_rank("pp")
        module = parts(2)[1][index]
        stage = PipelineStage(module, index, 2, torch.device("cpu"), group=mesh.get_group("pp"))
        schedule = Schedule1F1B(stage, 3, nn.functional.cross_entropy)
        x, y = (t.chunk(2)[mesh.get_local_rank("dp")] for t in next(batches(1)))
        schedule.step(*((x,) if index == 0 else ()), target=y if index == 1 else None)
        whole, references = parts(2)
        x, y = next(batches(1))
        nn.functional.cross_entropy(whole(x), y).backward()
        for value, other in zip(module.parameters(), references[index].parameters(), strict=True):
            assert value.grad is not None and other.grad is not None
            dist.all_reduce(value.grad, dist.ReduceOp.AVG, group=mesh.get_group("dp"))
            close(value.grad, other.grad)

    run(program, 4)
