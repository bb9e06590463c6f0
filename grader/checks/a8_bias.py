"""Checks of `BiasBalancedRouter`: its choice, its weights, and how its bias moves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from grader.checks import a4_volume as volume
from grader.checks import causes_a8_router as causes
from grader.checks.a4_cases import GROUP, GROUP_WORLD, PAIR
from grader.checks.a4_judges import OPERATIONS, expect, judge_refusal
from grader.checks.a8_router import normal, routed
from grader.checks.causes_a8 import in_sub_group
from grader.checks.compare import assert_close
from grader.checks.framework import CheckFailed
from grader.checks.world import SimulatedCluster

BIASED = "a8.BiasBalancedRouter"


@dataclass
class BiasCase:
    """logits, gradient, counts: by place in the group; counts of each place by update."""

    label: str
    experts: int
    k: int
    gamma: float | None = None
    bias: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    gradient: torch.Tensor | None = None
    counts: list[list[torch.Tensor]] = field(default_factory=lambda: [[]])
    world: int = 1
    ranks: tuple[int, ...] | None = None
    refused: bool = False

    @property
    def members(self) -> list[int]:
        """Global ranks, in group order."""
        return list(range(self.world) if self.ranks is None else self.ranks)

    def of_rank(self, rank: int) -> dict[str, Any]:
        """The case that the driver of a global rank gets."""
        place = self.members.index(rank) if rank in self.members else 0
        more = () if self.gamma is None else (self.gamma,)
        return {
            "arguments": [self.experts, self.k, *more],
            "bias": self.bias,
            "logits": None if self.logits is None else self.logits.clone(),
            "gradient": self.gradient,
            "counts": [counts.clone() for counts in self.counts[place]],
            "ranks": None if self.ranks is None else list(self.ranks),
            "refused": self.refused,
        }


def run(cluster: SimulatedCluster, cases: Sequence[BiasCase]) -> Any:
    """Run cases of one world size, judge them, and return the outcome."""
    inputs = [{"cases": [case.of_rank(rank) for case in cases]} for rank in range(cases[0].world)]
    outcome = cluster.run("a8:biased", inputs, task=BIASED, allow=None)
    for number, case in enumerate(cases):
        if case.refused:
            continue
        for place, rank in enumerate(case.members):
            _judge(case, outcome.outputs[rank][number], place, f"{case.label}: rank {rank}")
    return outcome


def _judge(case: BiasCase, answer: dict[str, Any], place: int, where: str) -> None:
    if answer["parameters"]:
        raise CheckFailed(
            f"{where}: the router has parameters {answer['parameters']}, expected none",
            cause="the bias is a parameter, which an optimizer would train: it must be a buffer"
            if "bias" in answer["parameters"]
            else None,
        )
    if case.logits is not None:
        _judge_choice(case, answer, where)
    if not answer["kept"]:
        raise CheckFailed(f"{where}: an argument was changed", cause="done in place")
    bias = torch.zeros(case.experts) if case.bias is None else case.bias
    expect(answer["start"], bias.double(), f"{where}: bias before any update", dtype=torch.float32)
    gamma = 1e-3 if case.gamma is None else case.gamma
    expected = bias.double()
    for step in range(len(case.counts[place])):
        before = expected
        counts = [each[step] for each in case.counts]
        total = torch.stack(counts).sum(0)
        excess = total * case.experts - total.sum()
        expected = before - gamma * excess.sign()
        assert_close(
            answer["biases"][step],
            expected,
            dtype=torch.float32,
            operations=2 * step + 4,
            scale=before.abs() + gamma,
            where=f"{where}: bias after update {step + 1}",
            suspects=causes.of_update(before, counts, place, gamma),
        )


def _judge_choice(case: BiasCase, answer: dict[str, Any], where: str) -> None:
    assert case.logits is not None
    exact = case.logits.double().requires_grad_()
    bias = torch.zeros(case.experts) if case.bias is None else case.bias
    weights, indices = routed(exact, case.k, True, bias.double())
    got_weights, got_indices = answer["outputs"]
    order = indices.sort(dim=1)
    shape = tuple(indices.shape)
    if not isinstance(got_indices, torch.Tensor) or tuple(got_indices.shape) != shape:
        raise CheckFailed(f"{where}: expected indices of shape {shape}, got {got_indices!r:.200}")
    found = got_indices.sort(dim=1)
    suspects = causes.of_biased_choice(exact.detach(), bias.double(), case.k)
    assert_close(
        found.values,
        order.values,
        dtype=torch.int64,
        operations=0,
        where=f"{where}: chosen experts, in order of their numbers",
        suspects=suspects,
    )
    if not isinstance(got_weights, torch.Tensor) or tuple(got_weights.shape) != shape:
        raise CheckFailed(f"{where}: expected weights of shape {shape}, got {got_weights!r:.200}")
    expect(
        got_weights.gather(1, found.indices),
        weights.detach().gather(1, order.indices),
        f"{where}: weights of the chosen",
        partial(causes.of_biased_weights, exact.detach(), bias.double(), order.values),
        dtype=case.logits.dtype,
        operations=OPERATIONS if case.logits.dtype is torch.float64 else 8,
    )
    if case.gradient is None:
        return
    # The gradient belongs to the student's order of choices.
    mine = exact.softmax(1).gather(1, got_indices)
    mine = mine / mine.sum(1, keepdim=True)
    (wanted,) = torch.autograd.grad(mine, exact, case.gradient.double())
    if answer["gradient"] is None:
        raise CheckFailed(f"{where}: the logits got no gradient", cause=causes.CUT_OFF)
    expect(answer["gradient"], wanted, f"{where}: gradient of the logits")


def choice(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """The bias is in the choice, and not in the weights."""
    cases = []
    for tokens, experts, k in ((6, 4, 2), (8, 8, 3), (5, 6, 1), (0, 4, 2)):
        logits = normal(rng, tokens, experts)
        bias = 0.4 * torch.randn(experts, generator=rng)
        label = f"{tokens} tokens, {experts} experts, k={k}"
        gradient = normal(rng, tokens, k) if tokens else None
        cases.append(BiasCase(f"{label}, a bias", experts, k, None, bias, logits, gradient))
        cases.append(BiasCase(f"{label}, no bias", experts, k, None, None, logits, gradient))
    strong = torch.tensor([3.0, -3.0, 0.0, 0.0, 3.0, -3.0])
    cases.append(BiasCase("a strong bias", 6, 3, None, strong, normal(rng, 7, 6)))
    narrow = normal(rng, 6, 8).bfloat16()
    cases.append(BiasCase("bfloat16", 8, 2, None, None, narrow))
    ties = torch.zeros(4, 40, dtype=torch.float64)
    cases.append(BiasCase("ties", 40, 3, None, None, ties))
    run(cluster, cases)


def update(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """Down above the mean, up below, nothing at it; several times."""
    at_mean = torch.tensor([4, 2, 6, 4])
    uneven = torch.tensor([3, 4, 4, 0, 9])  # the mean is 4
    between = torch.tensor([1, 2, 2])  # the mean is no whole number
    large = torch.tensor([(1 << 25) + 1, 1 << 25, (1 << 25) - 1])
    many = [torch.randint(0, 9, (6,), generator=rng) for _ in range(5)]
    cases = [
        BiasCase("counts 4 2 6 4", 4, 1, counts=[[at_mean]]),
        BiasCase("all at the mean", 4, 2, 0.5, counts=[[torch.full((4,), 7)]]),
        BiasCase("counts 3 4 4 0 9", 5, 2, 0.25, torch.randn(5, generator=rng), counts=[[uneven]]),
        BiasCase("counts 1 2 2", 3, 1, 0.1, counts=[[between, between]]),
        BiasCase("large counts", 3, 1, 0.1, counts=[[large]]),
        BiasCase("five updates", 6, 2, 1e-2, counts=[many]),
        BiasCase("no tokens", 3, 1, 0.1, counts=[[torch.zeros(3, dtype=torch.int64)]]),
    ]
    run(cluster, cases)


def groups(cluster: SimulatedCluster, rng: torch.Generator, metrics: dict[str, Any]) -> None:
    """The mean load is the group's, all ranks move alike, by one small all-reduce."""
    experts = 4
    # On each rank alone the picture is another one than in the sum, and than in the world.
    told = [[9, 0, 1, 2], [0, 7, 2, 3], [1, 1, 8, 2], [2, 3, 0, 7]]
    for world, ranks in ((4, None), (3, None), (GROUP_WORLD, GROUP), (GROUP_WORLD, PAIR)):
        size = world if ranks is None else len(ranks)
        counts = [
            [torch.tensor(told[place]), torch.tensor(told[place][::-1])] for place in range(size)
        ]
        where = f"{world} ranks" if ranks is None else f"group {list(ranks)}"
        case = BiasCase(where, experts, 1, 0.125, counts=counts, world=world, ranks=ranks)
        with in_sub_group(ranks) if ranks else nullcontext():
            outcome = run(cluster, [case])
        allowed = 2 * volume.moved("all_reduce", 16 * experts, size)
        for rank in case.members:
            marks = outcome.outputs[rank][0]["marks"]
            sent = volume.calls(outcome.trace, rank, *marks)
            metrics["update_bytes"] = volume.expect_phase(
                sent, size, allowed, f"{where}: rank {rank}, two updates",
                "an all-reduce of a number per expert each", "more than the counts is sent",
            )  # fmt: skip


def refuses(cluster: SimulatedCluster) -> None:
    """k outside 1 … experts; logits and counts of another number of experts."""
    logits = torch.zeros(3, 5)
    wrong = [torch.zeros(3, dtype=torch.int64)]
    cases = [
        (BiasCase("k=5 of 4 experts", 4, 5, refused=True), (5, 4)),
        (BiasCase("k=0 of 4 experts", 4, 0, refused=True), (0, 4)),
        (BiasCase("logits of 5 experts", 4, 2, logits=logits, refused=True), (5, 4)),
        (BiasCase("counts of 3 experts", 4, 2, counts=[wrong], refused=True), (3, 4)),
    ]
    outcome = run(cluster, [case for case, _ in cases])
    for (case, numbers), answer in zip(cases, outcome.outputs[0], strict=True):
        judge_refusal(answer.get("error"), numbers, case.label)
