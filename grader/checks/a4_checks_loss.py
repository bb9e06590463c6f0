"""The checks of assignment 4's loss on a vocabulary that is cut."""

from __future__ import annotations

from typing import Any

import torch

from grader.checks import a4_loss as loss
from grader.checks import a4_volume as volume
from grader.checks.a4_cases import GROUP, GROUP_WORLD, PAIR
from grader.checks.a4_judges import judge_refusal
from grader.checks.framework import check
from grader.checks.world import SimulatedCluster

LOSS = loss.TASK
Metrics = dict[str, Any]


@check(LOSS, points=4, name="is the loss of the gathered logits")
def test_loss_values(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    cases = [loss.make(rng, world, lead=lead) for world in (1, 2, 3) for lead in ((4,), (3, 2))]
    cases += [loss.make(rng, 3, owner=owner, label="targets on one rank") for owner in (0, 2)]
    cases.append(loss.make(rng, 2, dtype=torch.float32, label="float32"))
    loss.check(cluster, cases, gradient=False)


@check(LOSS, points=4, name="gives each rank the gradient of its own logits")
def test_loss_gradients(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    cases = [loss.make(rng, world) for world in (1, 2, 3)]
    cases += [loss.make(rng, 3, owner=owner, label="targets on one rank") for owner in (0, 2)]
    cases.append(loss.make(rng, 2, dtype=torch.float32, label="float32"))
    loss.check(cluster, cases, loss=False)


@check(LOSS, points=2, name="smooths over the whole vocabulary")
def test_loss_smoothing(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    cases = [
        loss.make(rng, world, label_smoothing=0.2, label="label_smoothing=0.2") for world in (1, 3)
    ]
    loss.check(cluster, cases)


@check(LOSS, points=2, name="leaves ignored tokens out")
def test_loss_ignored(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    cases = []
    for ignored in (-100, 0, 17):
        label = f"ignore_index={ignored}"
        cases += [loss.make(rng, 3, ignored=ignored, label=label)]
        cases += [loss.make(rng, 3, ignored=ignored, label=f"{label}, label_smoothing=0.1",
                            label_smoothing=0.1)]  # fmt: skip
    loss.check(cluster, cases)


@check(LOSS, points=2, name="does not overflow")
def test_loss_large(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    cases = [
        loss.make(rng, 3, scale=1e4, dtype=dtype, label="logits of 10⁴", label_smoothing=smoothing)
        for dtype in (torch.float64, torch.float32)
        for smoothing in (0.0, 0.1)
    ]
    for sign in (1, -1):
        case = loss.make(rng, 3, label=f"one rank's logits at {sign}0⁴")
        case.logits[..., :6] += sign * 1e4
        cases.append(case)
    loss.check(cluster, cases)


@check(LOSS, points=3, name="sends at most two all-reduces and four numbers per token")
def test_loss_bytes(cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics) -> None:
    world, lead = 4, (6, 3)
    case = loss.make(rng, world, lead=lead, columns=16, label_smoothing=0.1)
    outcome = loss.run(cluster, [case])
    numbers = 4 * lead[0] * lead[1] * 8
    for rank, (answer,) in enumerate(outcome.outputs):
        forward, backward = volume.phases(outcome.trace, rank, answer["marks"])
        where = f"{case.label}: rank {rank}, forward"
        cause = (
            "all logits are gathered" if any(op.kind == "all_gather" for op in forward) else None
        )
        metrics["forward_bytes"] = volume.expect_phase(
            forward, world, volume.moved("all_reduce", numbers, world), where,
            "all-reduces of four numbers per token", cause,
        )  # fmt: skip
        volume.expect_calls(
            forward, "all_reduce", 2, where,
            cause="what is summed can travel together: one all-reduce MAX, one SUM",
        )  # fmt: skip
        volume.expect_phase(
            backward, world, 0, f"{case.label}: rank {rank}, backward", "nothing",
            cause="each rank has all it needs for its own logits' gradient",
        )  # fmt: skip
    loss.judge_loss(case, [answers[0] for answers in outcome.outputs])


@check(LOSS, points=1, name="works in sub-groups")
def test_loss_groups(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    cases = [loss.make(rng, GROUP_WORLD, ranks, label_smoothing=0.1) for ranks in (GROUP, PAIR)]
    loss.check(cluster, cases)


@check(LOSS, points=1, name="takes 16-bit logits")
def test_loss_narrow(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    loss.check(cluster, [loss.make(rng, 2, columns=64, dtype=torch.bfloat16, label="bfloat16")])


@check(LOSS, points=1, name="refuses arguments that do not fit")
def test_loss_refuses(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    cases = [loss.make(rng, 2, label=label) for label in ("target 12", "target -1", "shapes")]
    cases.append(loss.make(rng, 2, label="label_smoothing=1.5", label_smoothing=1.5))
    cases[0].target.view(-1)[0] = 12
    cases[1].target.view(-1)[0] = -1
    cases[2].target = cases[2].target[:-1]
    for case in cases:
        case.refused = True
    outcome = loss.run(cluster, cases)
    wanted = (
        ("12", "11"),
        ("-1", "11"),
        ("target", "(4, 2)", "(5, 2)"),
        ("label_smoothing", "1.5"),
    )
    for number, (case, words) in enumerate(zip(cases, wanted, strict=True)):
        for rank, answers in enumerate(outcome.outputs):
            judge_refusal(answers[number].get("error"), words, f"{case.label}: rank {rank}")
