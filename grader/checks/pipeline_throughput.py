"""How fast one step of a pipeline is, beside torch's own 1F1B on the same stages."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from grader.checks.pipeline_judge import Home, step_text
from grader.checks.pipeline_plans import both_ways, greedy_plan, in_line
from grader.checks.pipeline_runs import driver_stages
from grader.checks.throughput import Plan, Problem, Throughput, Timed
from grader.checks.timed_models import Wide, flat_gradients
from grader.harness.throughput import Inputs

PLANS = {
    "a6.run_schedule": Plan(floor=0.57, full=0.85),
    # The copies of a stage exchange their gradients, which 1F1B need not.
    "a7.run_dualpipe": Plan(floor=0.59, full=0.77),
}
BASELINE = "torch.distributed.pipelining's Schedule1F1B"
#: task -> (ranks, micro-batches, placement, halves of a pair side by side).
PIPELINES: dict[str, tuple[int, int, Home, bool]] = {
    "a6.run_schedule": (2, 8, in_line, False),
    "a7.run_dualpipe": (4, 8, both_ways(4, 8), True),
}
#: (blocks of a stage, rows of a micro-batch, width) by device.
SHAPES = {"cpu": (1, 384, 192), "cuda": (4, 2048, 2048)}
#: Of float32, relative to the largest gradient.
_CLOSE = 1e-4


def problem(task: str, device: str = "cpu") -> Timed:
    """A step of the task's executor; torch's 1F1B has one stage of the same model on each rank.

    The buffer "gradients" has a row for every stage of the model; a rank fills those that it holds.
    """
    ranks, count, home, pairs = PIPELINES[task]
    blocks, rows, width = SHAPES[device]
    plan = greedy_plan(task, ranks, ranks, count, home, pairs=pairs)
    torch.manual_seed(6)
    model = [Wide(blocks, width) for _ in range(ranks)]
    numel = sum(parameter.numel() for parameter in model[0].parameters())
    whole = (count, rows, width)

    def make(numbers: np.random.Generator) -> Inputs:
        x, target = (
            torch.from_numpy(numbers.standard_normal(whole, dtype=np.float32)) for _ in range(2)
        )
        return [{"x": x, "target": target} for _ in range(ranks)]

    layout: dict[str, Any] = {
        "x": (whole, torch.float32),
        "target": (whole, torch.float32),
        "gradients": ((ranks, numel), torch.float32),
        "loss": ((1,), torch.float32),
    }
    common: dict[str, Any] = {
        "task": task,
        "blocks": blocks,
        "width": width,
        "ranks": ranks,
        "schedule": [" ".join(map(step_text, steps)) for steps in plan.ranks],
    }
    states = {number: dict(stage.state_dict()) for number, stage in enumerate(model)}
    given = [
        {**common, "states": {str(s): states[s] for s in place["stages"]}, **place}
        for place in driver_stages(plan)
    ]
    return Timed(Problem(layout, make, partial(_expected, model), _differs), given)


def _expected(model: list[Wide], inputs: Inputs) -> dict[str, torch.Tensor]:
    unsplit = nn.Sequential(*model)
    x, target = (inputs[0][name].flatten(0, 1) for name in ("x", "target"))
    with torch.no_grad():
        # Micro-batches are of one size: the mean of their losses is that of all rows.
        loss = nn.functional.mse_loss(unsplit(x), target)
    gradients = flat_gradients(unsplit, x, target).view(len(model), -1)
    return {"gradients": gradients, "loss": loss}


def _differs(expected: dict[str, torch.Tensor], tensors: Inputs) -> str | None:
    wanted, loss = expected["gradients"], float(expected["loss"])
    largest = float(wanted.abs().max())
    stages = set(range(len(wanted)))
    losses = 0
    for rank, buffers in enumerate(tensors):
        for stage, got in enumerate(buffers["gradients"]):
            if bool(torch.isnan(got).all()):
                continue
            stages.discard(stage)
            error = float((got - wanted[stage]).abs().max()) / largest
            if not error <= _CLOSE:
                return (
                    f"rank {rank}: the gradients of stage {stage} are off by {error:.2g} of the "
                    f"largest"
                )
        got_loss = float(buffers["loss"])
        if not math.isnan(got_loss):
            losses += 1
            if not abs(got_loss - loss) <= _CLOSE * abs(loss):
                return f"rank {rank}: the loss is {got_loss:.7g}, expected {loss:.7g}"
    if stages:
        return f"no rank has the gradients of stage {min(stages)}"
    return None if losses else "no rank has the loss"


def keeps_up(throughput: Throughput, task: str) -> None:
    """Judge the student's executor against torch's."""
    throughput.judge(
        task,
        "timed_training:pipeline",
        "timed_training:library_pipeline",
        problem(task, throughput.device),
        PLANS[task],
        baseline_name=BASELINE,
    )
