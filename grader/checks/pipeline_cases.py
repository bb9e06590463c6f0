"""Pipelines to be run: schedules, inputs by rank, and what the unsplit model computes.

Everything here runs on the examiner's side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from grader.checks import pipeline_models as models
from grader.checks.framework import CheckFailed
from grader.checks.pipeline_judge import Plan, step_text

#: Gradients are compared to this much of the largest gradient of the model (float64).
TOLERANCE = 1e-10


@dataclass
class Batch:
    """A model of `names` (one per stage), its weights, and one batch for it."""

    names: Sequence[str]
    states: list[dict[str, torch.Tensor]]
    inputs: list[Any]
    targets: list[torch.Tensor]
    losses: list[float] = field(default_factory=list)
    gradients: list[dict[str, torch.Tensor | None]] = field(default_factory=list)


def make_batch(
    rng: torch.Generator, names: Sequence[str], microbatches: int, rounds: int, uneven: bool = False
) -> Batch:
    """A random batch, and loss and gradients of the unsplit model after `rounds` rounds."""
    states = [models.random_state(name, rng) for name in names]
    rows = [3 + 2 * (uneven and i % 3 == 1) for i in range(microbatches)]

    def random(count: int) -> torch.Tensor:
        return torch.randn(count, models.WIDTH, generator=rng, dtype=torch.float64)

    inputs: list[Any] = [random(count) for count in rows]
    if names[0] == "carry":
        inputs = [[tensor, random(len(tensor))] for tensor in inputs]
    elif names[0] == "embedding":
        inputs = [torch.randint(5, (count,), generator=rng) for count in rows]
    batch = Batch(names, states, inputs, [random(count) for count in rows])
    stages = [models.build(name, state) for name, state in zip(names, states, strict=True)]
    for _ in range(rounds):
        total = torch.zeros((), dtype=torch.float64)
        for entering, target in zip(inputs, batch.targets, strict=True):
            value: Any = tuple(entering) if isinstance(entering, list) else (entering.clone(),)
            for stage in stages:
                value = stage(*value) if isinstance(value, tuple) else stage(value)
            total = total + models.mean_square(value, target)
        mean = total / microbatches
        mean.backward()  # type: ignore[no-untyped-call]
        batch.losses.append(float(mean.detach()))
    batch.gradients = [{n: p.grad for n, p in stage.named_parameters()} for stage in stages]
    return batch


def rank_inputs(
    plan: Plan,
    batch: Batch,
    task: str,
    rounds: int = 1,
    ranks: Sequence[int] | None = None,
    world: int | None = None,
) -> list[dict[str, Any]]:
    """The driver's input on every global rank. `ranks`: global ranks of the group, in order."""
    members = list(range(len(plan.ranks)) if ranks is None else ranks)
    count, last = len(batch.inputs), len(batch.names) - 1
    homes = {(stage, i): rank for rank, _, (kind, stage, i) in plan.actions() if kind == "F"}
    answers: list[dict[str, Any]] = []
    for rank in range(world or len(members)):
        place = members.index(rank) if rank in members else -1
        mine = sorted({stage for (stage, _), home in homes.items() if home == place})

        def entries(stage: int, values: list[Any], place: int = place) -> list[Any] | None:
            found = [
                v if homes[stage, i] == place else None
                for i, v in zip(range(count), values, strict=True)
            ]
            return None if all(v is None for v in found) else found

        answers.append(
            {
                "task": task,
                "schedule": [" ".join(map(step_text, steps)) for steps in plan.ranks],
                "stages": {
                    str(s): {"model": batch.names[s], "state": batch.states[s]} for s in mine
                },
                "inputs": entries(0, batch.inputs),
                "targets": entries(last, batch.targets),
                "rounds": rounds,
                "ranks": None if ranks is None else list(ranks),
            }
        )
    return answers


def judge_pipeline(
    outputs: Sequence[Any], batch: Batch, plan: Plan, ranks: Sequence[int] | None = None
) -> None:
    """Loss on the ranks that have it and nowhere else, gradients of every stage on every copy."""
    members = list(range(len(plan.ranks)) if ranks is None else ranks)
    count, last = len(batch.inputs), len(batch.names) - 1
    ends = {rank for rank, _, (_, stage, _) in plan.actions() if stage == last}
    for place, rank in enumerate(members):
        answer = outputs[rank]
        where = f"{plan.label}: rank {place}"
        for number, loss in enumerate(answer["losses"]):
            if place in ends:
                here = [outputs[members[end]]["losses"][number] for end in ends]
                _judge_loss(loss, batch.losses[number], count, f"{where}, call {number}", here)
            elif loss is not None:
                raise CheckFailed(
                    f"{where}: expected None on a rank without the last stage, got the loss {loss}"
                )
        for stage, gradients in answer["gradients"].items():
            copies = [outputs[r]["gradients"].get(stage) for r in members if r != rank]
            others = [copy for copy in copies if copy is not None]
            _judge_gradients(gradients, batch, int(stage), count, f"{where}, stage {stage}", others)


def _judge_loss(
    loss: Any, expected: float, count: int, where: str, of_all_ends: Sequence[Any]
) -> None:
    if not isinstance(loss, (torch.Tensor, float)) or torch.as_tensor(loss).numel() != 1:
        raise CheckFailed(f"{where}: expected the mean loss, got {loss!r}"[:300])
    got = float(loss)
    if abs(got - expected) > TOLERANCE * max(1.0, abs(expected)):
        raise CheckFailed(
            f"{where}: expected the mean loss {expected:.12g}, got {got:.12g}",
            cause=_factor(got / expected if expected else 0.0, count)
            or _of_one_end(of_all_ends, expected),
        )


def _of_one_end(losses: Sequence[Any], expected: float) -> str | None:
    """Losses that differ between the two ends of a two-way pipeline, but are right on average."""
    if len(losses) < 2 or any(not isinstance(each, (torch.Tensor, float)) for each in losses):
        return None
    mean = sum(float(each) for each in losses) / len(losses)
    if abs(mean - expected) > TOLERANCE * max(1.0, abs(expected)):
        return None
    return "that is the mean over the micro-batches that end on this rank, not over all"


def _judge_gradients(
    gradients: dict[str, Any],
    batch: Batch,
    stage: int,
    count: int,
    where: str,
    copies: Sequence[dict[str, Any]],
) -> None:
    largest = max(
        (float(g.abs().max()) for each in batch.gradients for g in each.values() if g is not None),
        default=1.0,
    )
    for name, expected in batch.gradients[stage].items():
        got = gradients[name]
        here = f"{where}, {name}"
        if expected is None:
            if got is not None and bool((got != 0).any()):
                raise CheckFailed(f"{here}: expected no gradient, got {got.flatten()[:4]}")
            continue
        if got is None:
            raise CheckFailed(f"{here}: has no gradient", cause="its weight gradient never came")
        if got.shape != expected.shape:
            raise CheckFailed(f"{here}: shape {tuple(got.shape)}, expected {expected.shape}")
        error = float((got - expected).abs().max())
        if not error <= TOLERANCE * largest:
            raise CheckFailed(
                f"{here}: gradient differs from the unsplit model's by {error:.3g} "
                f"(largest gradient {largest:.3g})",
                cause=_gradient_cause(
                    got, expected, [copy[name] for copy in copies], TOLERANCE * largest, count
                ),
            )


def _gradient_cause(
    got: torch.Tensor, expected: torch.Tensor, copies: Sequence[Any], bound: float, count: int
) -> str | None:
    same_form = [c for c in copies if isinstance(c, torch.Tensor) and c.shape == expected.shape]
    if same_form and float((got + sum(same_form) - expected).abs().max()) <= bound:
        return "the gradients of the two copies of the stage are not summed"
    norm = float((expected * expected).sum())
    ratio = float((got * expected).sum()) / norm if norm else 0.0
    if float((got - ratio * expected).abs().max()) <= bound:
        return _factor(ratio, count)
    return (
        "messages may have been mixed up: the n-th send to a rank fills the n-th receive that it "
        "posted"
    )


def _factor(ratio: float, count: int) -> str | None:
    for factor, cause in (
        (count, "summed over micro-batches where the mean was meant"),
        (2, "counted twice"),
        (0.5, "only half is there: one of two calls of run_schedule, or one of two copies, counts"),
        (1.5, ".grad of an earlier call, already summed over the copies, was summed again"),
        (1 / count, "divided by the number of micro-batches twice"),
    ):
        if abs(ratio - factor) < 1e-6:
            return cause
    return None
