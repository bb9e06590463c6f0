"""Checks of `top_k_router`, and what checks of functions on one rank share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from grader.checks import causes_a8_router as causes
from grader.checks.a4_judges import OPERATIONS, expect, judge_refusal
from grader.checks.compare import assert_close
from grader.checks.framework import CheckFailed
from grader.checks.world import SimulatedCluster

TOP_K = "a8.top_k_router"
#: Roundings of a 16-bit result: of a softmax, a sum, a quotient, each rounded.
_FEW = 8


@dataclass
class Call:
    """One call: tensors and more are its arguments; judge raises when the answer is wrong."""

    label: str
    tensors: list[torch.Tensor]
    more: tuple[Any, ...]
    judge: Callable[[dict[str, Any], str], None]
    gradient: torch.Tensor | None = None
    named: dict[str, Any] = field(default_factory=dict)


def run(cluster: SimulatedCluster, task: str, calls: Sequence[Call]) -> None:
    """Run calls on one rank and judge them; arguments must be kept."""
    cases = [
        {
            "tensors": [tensor.clone() for tensor in call.tensors],
            "more": list(call.more),
            "named": call.named,
            "gradient": call.gradient,
            "refused": False,
        }
        for call in calls
    ]
    given = [{"task": task, "cases": cases}]
    outcome = cluster.run("a8:routing", given, task=task, allow=None)
    for call, answer in zip(calls, outcome.outputs[0], strict=True):
        call.judge(answer, call.label)
        for before, after in zip(call.tensors, answer["tensors"], strict=True):
            if not torch.equal(before, after):
                raise CheckFailed(f"{call.label}: an argument was changed", cause="done in place")


Refusal = tuple[list[torch.Tensor], tuple[Any, ...], Sequence[object], str]


def refuses(cluster: SimulatedCluster, task: str, refusals: Sequence[Refusal]) -> None:
    """Every call (tensors, more, what the message must name, label) raises ValueError."""
    cases: list[dict[str, Any]] = [
        {"tensors": tensors, "more": list(more), "named": {}, "gradient": None, "refused": True}
        for tensors, more, _, _ in refusals
    ]
    given = [{"task": task, "cases": cases}]
    outcome = cluster.run("a8:routing", given, task=task, allow=None)
    for (_, _, words, label), answer in zip(refusals, outcome.outputs[0], strict=True):
        judge_refusal(answer.get("error"), words, label)


def expect_numbers(got: Any, where: str, cause: str) -> None:
    """`got` holds no NaN."""
    if isinstance(got, torch.Tensor) and got.is_floating_point() and bool(got.isnan().any()):
        count = int(got.isnan().sum())
        raise CheckFailed(f"{where}: {count} of {got.numel()} numbers are NaN", cause=cause)


def normal(rng: torch.Generator, *shape: int) -> torch.Tensor:
    """Random float64 numbers."""
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


# top_k_router -------------------------------------------------------------------------------------


def best(scores: torch.Tensor, k: int) -> torch.Tensor:
    """(tokens, k), the k largest by falling score, ties to the lower index."""
    return scores.sort(dim=1, descending=True, stable=True).indices[:, :k]


def routed(
    logits: torch.Tensor, k: int, normalize: bool, bias: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(weights, indices) in float64; bias: added to the softmax for the choice."""
    probabilities = logits.softmax(1)
    scores = logits if bias is None else probabilities + bias
    indices = best(scores.detach(), k)
    weights = probabilities.gather(1, indices)
    return (weights / weights.sum(1, keepdim=True) if normalize else weights), indices


def top_k(
    rng: torch.Generator,
    logits: torch.Tensor,
    k: int,
    normalize: bool = True,
    *,
    gradient: bool = False,
    label: str = "",
) -> Call:
    """A call of top_k_router on logits of any floating dtype."""
    upstream = normal(rng, len(logits), k).to(logits.dtype) if gradient else None
    words = f"{tuple(logits.shape)} logits, k={k}" + ("" if normalize else ", normalize=False")
    return Call(
        f"{words}, {label}" if label else words,
        [logits],
        (k,),
        partial(_judge_top_k, logits, k, normalize, upstream),
        upstream,
        {} if normalize else {"normalize": False},
    )


def _judge_top_k(
    logits: torch.Tensor,
    k: int,
    normalize: bool,
    upstream: torch.Tensor | None,
    answer: dict[str, Any],
    where: str,
) -> None:
    exact = logits.double().requires_grad_()
    weights, indices = routed(exact, k, normalize)
    if len(answer["outputs"]) != 2:
        raise CheckFailed(f"{where}: expected (weights, indices), got {len(answer['outputs'])}")
    got_weights, got_indices = answer["outputs"]
    why = causes.why_other_choice(logits, got_indices, indices)
    assert_close(
        got_indices,
        indices,
        dtype=torch.int64,
        operations=0,
        where=f"{where}: indices",
        suspects=[] if why is causes.ROUNDED else causes.of_choice(logits.double(), indices),
        cause=why,
    )
    expect_numbers(got_weights, f"{where}: weights", "exp overflows: subtract the largest logit")
    operations = _FEW if logits.dtype is torch.bfloat16 else OPERATIONS
    if logits.dtype is torch.float32:
        operations = 4 * logits.shape[1] + 16
    expect(
        got_weights,
        weights.detach(),
        f"{where}: weights",
        partial(causes.of_weights, logits.double(), indices, normalize),
        dtype=logits.dtype,
        operations=operations,
    )
    if upstream is None:
        return
    (wanted,) = torch.autograd.grad(weights, exact, upstream.double())
    got = answer["gradients"][0]
    if got is None:
        raise CheckFailed(f"{where}: the logits got no gradient", cause=causes.CUT_OFF)
    expect(
        got,
        wanted,
        f"{where}: gradient of the logits",
        partial(causes.of_logits_gradient, logits, indices, upstream, normalize),
    )


def top_k_values(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """Choice and weights, both ways, in float64, float32 and bfloat16."""
    calls = []
    for tokens, experts, k in ((5, 4, 2), (7, 8, 1), (3, 16, 4), (4, 3, 3), (0, 4, 2), (1, 1, 1)):
        for normalize in (True, False):
            calls.append(top_k(rng, normal(rng, tokens, experts), k, normalize))
    wide = normal(rng, 4, 6) * 30
    calls.append(top_k(rng, wide + 800, 3, label="logits around 800"))
    calls.append(top_k(rng, normal(rng, 9, 6).float(), 2, label="float32"))
    calls.append(top_k(rng, normal(rng, 6, 8).t(), 2, label="not contiguous"))
    narrow = normal(rng, 8, 12).bfloat16()
    neighbours = torch.cat([0.125 + torch.arange(5) / 1024, torch.tensor([-1.0, -2.0, -3.0])])
    narrow_rows = torch.stack([neighbours, neighbours.flip(0)]).bfloat16()
    for logits, label in ((narrow, "bfloat16"), (narrow_rows, "bfloat16, logits close together")):
        for normalize in (True, False):
            calls.append(top_k(rng, logits, 3, normalize, label=label))
    run(cluster, TOP_K, calls)


def top_k_ties(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """Equal logits: the lower index, in small and large rows, for every k."""
    calls = []
    for tokens, experts in ((6, 8), (4, 64), (3, 300)):
        levels = torch.randint(0, 3, (tokens, experts), generator=rng).double()
        for k in (1, 2, experts // 2, experts):
            calls.append(top_k(rng, levels, k, label="many ties"))
        calls.append(top_k(rng, torch.zeros(tokens, experts), 2, label="all equal"))
    run(cluster, TOP_K, calls)


def top_k_gradients(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """Gradients of the logits, normalized and not."""
    calls = [
        top_k(rng, normal(rng, tokens, experts), k, normalize, gradient=True)
        for tokens, experts, k in ((5, 4, 2), (6, 8, 3), (3, 5, 1), (2, 3, 3))
        for normalize in (True, False)
    ]
    run(cluster, TOP_K, calls)


def top_k_refuses(cluster: SimulatedCluster) -> None:
    """k outside 1 … experts."""
    logits = torch.zeros(3, 4)
    refuses(
        cluster,
        TOP_K,
        [
            ([logits], (0,), (0, 4), "k=0 of 4 experts"),
            ([logits], (5,), (5, 4), "k=5 of 4 experts"),
        ],
    )
