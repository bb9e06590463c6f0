"""Checks of the auxiliary loss and of capacity."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from grader.checks import causes_a8_router as causes
from grader.checks.a4_judges import expect
from grader.checks.a8_router import Call, best, expect_numbers, normal, refuses, run
from grader.checks.compare import assert_close
from grader.checks.framework import CheckFailed
from grader.checks.world import SimulatedCluster

#: Roundings of float64 that are as large as one of float32.
_FLOAT32 = 1 << 29

LOSS, CAPACITY = "a8.load_balancing_loss", "a8.apply_capacity"

# load_balancing_loss ------------------------------------------------------------------------------


def _loss(
    rng: torch.Generator,
    probabilities: torch.Tensor,
    indices: torch.Tensor,
    *,
    gradient: bool = False,
    label: str = "",
) -> Call:
    experts = probabilities.shape[1]
    upstream = normal(rng, 1)[0] if gradient else None
    words = f"{len(indices)} tokens, {experts} experts, k={indices.shape[1]}"
    return Call(
        f"{words}, {label}" if label else words,
        [probabilities, indices],
        (experts,),
        partial(_judge_loss, probabilities, indices, upstream),
        upstream,
    )


def _judge_loss(
    probabilities: torch.Tensor,
    indices: torch.Tensor,
    upstream: torch.Tensor | None,
    answer: dict[str, Any],
    where: str,
) -> None:
    tokens, experts = probabilities.shape
    shares = torch.bincount(indices.flatten(), minlength=experts).double()
    shares = shares / max(indices.numel(), 1)
    exact = probabilities.double()
    means = exact.sum(0) / max(tokens, 1)
    got = answer["outputs"][0]
    none = "divided by the number of tokens, which is 0 here: the loss must be 0, not NaN"
    expect_numbers(got, f"{where}: loss", cause=none)
    # f is a quotient of whole numbers, which torch gives in float32.
    operations = 4 * (tokens + experts) + 16
    if exact is probabilities:
        operations *= _FLOAT32
    expect(
        got,
        experts * (shares * means).sum(),
        f"{where}: loss",
        partial(causes.of_loss, exact, indices),
        dtype=probabilities.dtype,
        operations=operations,
    )
    if upstream is None:
        return
    got = answer["gradients"][0]
    if got is None:
        raise CheckFailed(f"{where}: probabilities got no gradient", cause=causes.CUT_OFF)
    wanted = (experts * shares / tokens * upstream).expand(tokens, experts)
    expect(
        got,
        wanted,
        f"{where}: gradient of probabilities",
        partial(causes.of_loss_gradient, exact, indices, upstream),
        operations=operations,
    )


def _choices(rng: torch.Generator, tokens: int, experts: int, k: int) -> torch.Tensor:
    """(tokens, k) experts, all different in a row; low ones are favoured."""
    scores = normal(rng, tokens, experts) - 0.4 * torch.arange(experts)
    return best(scores, k)


def _softmax(rng: torch.Generator, tokens: int, experts: int) -> torch.Tensor:
    return (2 * normal(rng, tokens, experts)).softmax(1)


def loss_values(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """Values for uneven loads, k of 1 to 4, float64 and float32; no tokens."""
    calls = []
    for tokens, experts, k in ((6, 4, 1), (9, 8, 2), (5, 3, 3), (12, 16, 4), (1, 5, 2)):
        chosen = _choices(rng, tokens, experts, k)
        calls.append(_loss(rng, _softmax(rng, tokens, experts), chosen))
    chosen = _choices(rng, 7, 6, 2)
    calls.append(_loss(rng, _softmax(rng, 7, 6).float(), chosen, label="float32"))
    none = torch.zeros(0, 2, dtype=torch.int64)
    calls.append(_loss(rng, torch.zeros(0, 4, dtype=torch.float64), none))
    run(cluster, LOSS, calls)


def loss_ends(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """1.0 when uniform, E when all goes to one expert."""
    calls = []
    for experts, k in ((4, 1), (8, 2), (6, 3)):
        even = torch.arange(experts * k).reshape(experts, k) % experts
        flat = torch.full((experts, experts), 1 / experts, dtype=torch.float64)
        calls.append(_loss(rng, flat, even, label="uniform"))
    one = torch.zeros(5, 4, dtype=torch.float64)
    one[:, 2] = 1
    chosen = torch.full((5, 1), 2)
    calls.append(_loss(rng, one, chosen, label="all to one expert"))
    run(cluster, LOSS, calls)


def loss_gradients(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """The gradient goes through the mean probabilities only."""
    calls = []
    for tokens, experts, k in ((6, 4, 1), (9, 8, 2), (5, 3, 3)):
        chosen = _choices(rng, tokens, experts, k)
        calls.append(_loss(rng, _softmax(rng, tokens, experts), chosen, gradient=True))
    run(cluster, LOSS, calls)


def loss_refuses(cluster: SimulatedCluster) -> None:
    """Another number of experts or of tokens."""
    probabilities = torch.full((3, 4), 0.25)
    indices = torch.zeros(3, 2, dtype=torch.int64)
    refuses(
        cluster,
        LOSS,
        [
            ([probabilities, indices], (6,), (4, 6), "4 columns, num_experts=6"),
            ([probabilities, indices[:2]], (4,), (3, 2), "3 tokens, indices of 2"),
        ],
    )


# apply_capacity -----------------------------------------------------------------------------------


def kept(indices: torch.Tensor, experts: int, factor: float) -> torch.Tensor:
    """Which assignments are kept, one after the other."""
    tokens, k = indices.shape
    capacity = math.ceil(tokens * k / experts * factor)
    taken = [0] * experts
    result = torch.zeros(tokens, k, dtype=torch.bool)
    for choice in range(k):
        for token in range(tokens):
            expert = int(indices[token, choice])
            if expert >= 0 and taken[expert] < capacity:
                taken[expert] += 1
                result[token, choice] = True
    return result


def _capacity(
    rng: torch.Generator, indices: torch.Tensor, experts: int, factor: float, label: str = ""
) -> Call:
    tokens, k = indices.shape
    weights = torch.rand(tokens, k, generator=rng).sort(1, descending=True).values
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-3)
    words = f"{tokens} tokens, {experts} experts, k={k}, capacity_factor={factor}"

    def judge(answer: dict[str, Any], where: str) -> None:
        assert_close(
            answer["outputs"][0],
            kept(indices, experts, factor),
            dtype=torch.bool,
            operations=0,
            where=where,
            suspects=causes.of_kept(indices, weights, experts, factor),
        )

    return Call(
        f"{words}, {label}" if label else words, [indices, weights], (experts, factor), judge
    )


def capacity_order(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """First choices before second ones, tokens in order."""
    crowded = torch.tensor([[0, 1], [1, 0], [1, 0], [0, 1], [2, 1], [1, 2]])
    calls = [_capacity(rng, crowded, 3, 0.5)]
    for tokens, experts, k in ((12, 4, 2), (20, 8, 3), (9, 5, 2), (30, 3, 3)):
        calls.append(_capacity(rng, _choices(rng, tokens, experts, k), experts, 0.75))
    run(cluster, CAPACITY, calls)


def capacity_sizes(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """⌈k · tokens / E × factor⌉, rounded up, of all k."""
    calls = []
    for factor in (1.0, 1.25, 0.3, 0.05, 2.0, 100.0):
        for tokens, experts, k in ((10, 4, 1), (10, 4, 2), (7, 3, 2), (16, 8, 3)):
            calls.append(_capacity(rng, _choices(rng, tokens, experts, k), experts, factor))
    run(cluster, CAPACITY, calls)


def capacity_odd(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """All to one expert, none at all, choices dropped before, one expert."""
    one = torch.zeros(8, 1, dtype=torch.int64) + 3
    dropped = _choices(rng, 12, 4, 2)
    dropped[torch.rand(12, 2, generator=rng) < 0.4] = -1
    calls = [
        _capacity(rng, one, 4, 1.0, "all to expert 3"),
        _capacity(rng, one[:0], 4, 1.0, "no tokens"),
        _capacity(rng, dropped, 4, 1.0, "some dropped before"),
        _capacity(rng, dropped, 4, 0.4, "some dropped before"),
        _capacity(rng, torch.zeros(5, 1, dtype=torch.int64), 1, 0.5, "one expert"),
    ]
    run(cluster, CAPACITY, calls)


def capacity_refuses(cluster: SimulatedCluster) -> None:
    """Shapes that differ; a factor that is not positive."""
    indices, weights = torch.zeros(3, 2, dtype=torch.int64), torch.ones(3, 2)
    refuses(
        cluster,
        CAPACITY,
        [
            ([indices, weights[:, :1]], (4, 1.0), ("(3, 2)", "(3, 1)"), "weights of shape (3, 1)"),
            ([indices, weights], (4, 0.0), ("capacity_factor",), "capacity_factor=0"),
        ],
    )
