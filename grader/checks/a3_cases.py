"""The trainings of assignment 3: inputs, and what one process makes of them.

Everything here runs on the examiner's side, in float64 but for parameters of another dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from grader.checks import a3_optimizers
from grader.checks.a3_models import FEATURES, TARGETS, SingleProcess, random_state
from grader.checks.framework import CheckFailed
from grader.checks.world import Outcome, SimulatedCluster

MLP: dict[str, Any] = {"name": "mlp", "width": 7, "blocks": 3}
ODD: dict[str, Any] = {"name": "odd", "width": 6}
MIXED: dict[str, Any] = {"name": "mixed", "width": 6}

# A large eps: where a gradient is nearly zero, Adam would otherwise magnify its rounding errors.
ADAMW = {"class": "AdamW", "options": {"lr": 0.02, "eps": 1e-3, "weight_decay": 0.1}}
MOMENTUM = {"class": "Momentum", "options": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}}

#: Roundings from a batch to a loss some steps later: generous, and still 1e-10 in float64.
OPERATIONS = 100_000
OPERATIONS_NARROW = 500  # float32: 6e-5

IN_DISGUISE = "torch's own code does the work; the task is to write what it does"


@dataclass
class Training:
    """A training on `world` ranks, of which `ranks` (in group order; None: all) take part.

    batches: by step, by group rank, lists of micro-batches (inputs, targets, *more).
    states: by group rank, what the model holds before it is wrapped; the first one counts.
    """

    label: str
    world: int
    ranks: tuple[int, ...] | None
    model: Mapping[str, Any]
    states: list[dict[str, torch.Tensor]]
    batches: list[list[list[list[Any]]]]
    optimizer: Mapping[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    quiet: int = 0

    @property
    def members(self) -> list[int]:
        """Global ranks, in group order."""
        return list(range(self.world) if self.ranks is None else self.ranks)

    def of_rank(self, rank: int) -> dict[str, Any]:
        """The case that the driver of a global rank gets."""
        members = self.members
        place = members.index(rank) if rank in members else 0
        return {
            "model": dict(self.model),
            "state": self.states[place],
            "ranks": None if self.ranks is None else list(self.ranks),
            "options": self.options,
            "optimizer": dict(self.optimizer),
            "batches": [step[place] for step in self.batches],
            "refused": False,
            "quiet": self.quiet,
            **self.extra,
        }


def random_batch(rng: torch.Generator, rows: int) -> list[torch.Tensor]:
    """Inputs (rows, FEATURES) and targets (rows, TARGETS), float64."""
    return [
        torch.randn(rows, columns, generator=rng, dtype=torch.float64)
        for columns in (FEATURES, TARGETS)
    ]


def training(
    rng: torch.Generator,
    model: Mapping[str, Any],
    world: int,
    ranks: tuple[int, ...] | None = None,
    *,
    steps: int = 4,
    rows: int = 3,
    micro_batches: int = 1,
    optimizer: Mapping[str, Any] = ADAMW,
    same_start: bool = False,
    branches: Sequence[str] | None = None,
    label: str = "",
    **more: Any,
) -> Training:
    """A training with random weights and data. branches: by group rank, for the model "odd"."""
    size = world if ranks is None else len(ranks)
    states = [random_state(model, rng) for _ in range(size)]
    if same_start:
        states = [states[0]] * size
    batches = [
        [
            [
                random_batch(rng, rows) + ([branches[rank]] if branches is not None else [])
                for _ in range(micro_batches)
            ]
            for rank in range(size)
        ]
        for _ in range(steps)
    ]
    where = f"{world} rank{'s' * (world > 1)}" if ranks is None else f"group {list(ranks)}"
    text = ", ".join(filter(None, [where, f"model {model['name']}", label]))
    return Training(text, world, ranks, model, states, batches, optimizer, **more)


def run(
    cluster: SimulatedCluster,
    task: str,
    driver: str,
    trainings: Sequence[Training],
    **options: Any,
) -> Outcome:
    """Run trainings of one world size in one world; answers are lists by training."""
    world = trainings[0].world
    inputs = [
        {"task": f"a3.{task}", "cases": [each.of_rank(rank) for each in trainings]}
        for rank in range(world)
    ]
    return run_inputs(cluster, task, driver, inputs, **options)


def run_inputs(
    cluster: SimulatedCluster, task: str, driver: str, inputs: Sequence[Any], **options: Any
) -> Outcome:
    """Run a driver, and refuse torch's own layers under another name."""
    outcome = cluster.run(f"a3:{driver}", inputs, task=f"a3.{task}", allow=None, **options)
    for output in outcome.outputs:
        if isinstance(output, dict) and "extends" in output:
            raise CheckFailed(
                f"{task} is, holds or calls {output['extends']}: expected an implementation of "
                f"your own, from collectives and messages",
                cause=IN_DISGUISE,
            )
    return outcome


def worlds_of(trainings: Sequence[Training]) -> list[list[Training]]:
    """The trainings by world size."""
    sizes = sorted({each.world for each in trainings})
    return [[each for each in trainings if each.world == size] for size in sizes]


@dataclass
class Expected:
    """One step of one process: losses and gradients by group rank, their mean, and the state."""

    losses: list[torch.Tensor]
    local: list[dict[str, torch.Tensor | None]]
    gradients: dict[str, torch.Tensor | None]
    before: dict[str, torch.Tensor]


def expected_steps(case: Training) -> list[Expected]:
    """The whole training in one process."""
    process = SingleProcess(case.model, case.states[0])
    trainable = [p for p in process.model.parameters() if p.requires_grad]
    optimizer = a3_optimizers.make(case.optimizer, trainable)
    steps = []
    for batch in case.batches:
        losses = process.losses(batch)
        local = [process.gradients(loss) for loss in losses]
        gradients = process.gradients(torch.stack(losses).mean())
        steps.append(
            Expected([loss.detach() for loss in losses], local, gradients, process.parameters())
        )
        process.set_gradients(gradients)
        optimizer.step()
    steps.append(Expected([], [], {}, process.parameters()))
    return steps


def operations(dtype: torch.dtype, model: Mapping[str, Any] | None = None) -> int:
    """Roundings to allow for in values of this dtype.

    model: what they were computed with, if float32 parts of it had a hand in them.
    """
    if dtype != torch.float64:
        return OPERATIONS_NARROW
    if model is not None and model["name"] == "mixed":
        return OPERATIONS_NARROW << 29  # so many of float64's are one of float32's
    return OPERATIONS
