"""Cases of `ExpertParallelMoE`, and what one device makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from grader.checks.a8_router import best

State = dict[str, torch.Tensor]


@dataclass
class MoeCase:
    """xs, gradients, dropped: by step and place. experts: all of them."""

    label: str
    world: int
    ranks: tuple[int, ...] | None
    experts: list[State]
    router: torch.Tensor
    k: int
    xs: list[list[torch.Tensor]]
    gradients: list[list[torch.Tensor]]
    dropped: list[list[torch.Tensor]] | None = None
    rate: float = 0.1
    refused: bool = False

    @property
    def members(self) -> list[int]:
        """Global ranks, in group order."""
        return list(range(self.world) if self.ranks is None else self.ranks)

    @property
    def per_rank(self) -> int:
        """Experts of a rank."""
        return len(self.experts) // len(self.members)

    def of_rank(self, rank: int) -> dict[str, Any]:
        """The case that the driver of a global rank gets."""
        place = self.members.index(rank) if rank in self.members else 0
        own = self.experts[place * self.per_rank : (place + 1) * self.per_rank]
        return {
            "experts": [{name: value.clone() for name, value in state.items()} for state in own],
            "router": self.router.clone(),
            "k": self.k,
            "xs": [step[place].clone() for step in self.xs],
            "gradients": [step[place].clone() for step in self.gradients],
            "dropped": None if self.dropped is None else [step[place] for step in self.dropped],
            "rate": self.rate,
            "ranks": None if self.ranks is None else list(self.ranks),
            "refused": self.refused,
        }


def moe(
    rng: torch.Generator,
    world: int,
    ranks: tuple[int, ...] | None = None,
    *,
    experts: int,
    k: int = 2,
    hidden: int = 4,
    counts: Sequence[int] | None = None,
    lead: tuple[int, ...] = (),
    steps: int = 1,
    drops: bool = False,
    favourite: int | None = None,
    label: str = "",
) -> MoeCase:
    """A case with random numbers. lead: dimensions before the tokens'; favourite: gets all."""
    size = world if ranks is None else len(ranks)
    counts = [(4 + 3 * place) % 8 for place in range(size)] if counts is None else counts

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    inner = 3
    states = [
        {"up": random(hidden, inner), "down": random(inner, hidden), "bias": random(hidden)}
        for _ in range(experts)
    ]
    router = random(experts, hidden)
    xs = [[random(*lead, count, hidden) for count in counts] for _ in range(steps)]
    if favourite is not None:
        # All inputs have a large first number, which only this expert's row of the router likes.
        router[:, 0] = 0
        router[favourite, 0] = 4
        for x in (x for step in xs for x in step):
            x[..., 0] = 5 + x[..., 0].abs()
    rows = [x.shape[:-1].numel() for x in xs[0]]
    where = f"{world} rank{'s' * (world > 1)}" if ranks is None else f"group {list(ranks)}"
    return MoeCase(
        ", ".join(filter(None, [where, f"{experts} experts, k={k}", label])),
        world,
        ranks,
        states,
        router,
        k,
        xs,
        [[random(*x.shape) for x in step] for step in xs],
        [[torch.rand(n, k, generator=rng) < 0.4 for n in rows] for _ in range(steps)]
        if drops
        else None,
    )


# One device ---------------------------------------------------------------------------------------


@dataclass
class Part:
    """What one device makes of the tokens of one place: output, and gradients they cause."""

    output: torch.Tensor
    x: torch.Tensor
    experts: list[State]
    router: torch.Tensor
    indices: torch.Tensor


def one_device(
    case: MoeCase,
    states: Sequence[State],
    router: torch.Tensor,
    step: int,
    place: int,
    weighted: bool = True,
    cut: str = "",
) -> Part:
    """Forward and backward in float64, expert by expert.

    cut: "router" or "experts", the one from which no gradient comes back to the input.
    """
    leaves = [{n: v.clone().requires_grad_() for n, v in state.items()} for state in states]
    gate = router.clone().requires_grad_()
    x = case.xs[step][place].clone().requires_grad_()
    tokens = x.flatten(0, -2)
    seen = tokens.detach() if cut == "router" else tokens
    probabilities = (seen @ gate.t()).softmax(-1)
    indices = best(probabilities.detach(), case.k)
    weights = probabilities.gather(1, indices)
    weights = weights / weights.sum(1, keepdim=True)
    if case.dropped is not None:
        indices = indices.masked_fill(case.dropped[step][place], -1)
    out = torch.zeros_like(tokens)
    sent = tokens.detach() if cut == "experts" else tokens
    for number, state in enumerate(leaves):
        share = torch.where(indices == number, weights, 0.0).sum(1, keepdim=True)
        if not weighted:
            share = (indices == number).any(1, keepdim=True).double() + 0 * share
        out = out + share * (F.gelu(sent @ state["up"]) @ state["down"] + state["bias"])
    out = out.view_as(x)
    named = [value for state in leaves for value in state.values()]
    found = torch.autograd.grad(
        out, [x, gate, *named], case.gradients[step][place], allow_unused=True
    )
    zeros = [
        torch.zeros_like(t) if g is None else g
        for g, t in zip(found, [x, gate, *named], strict=True)
    ]
    gradients = iter(zeros[2:])
    by_expert = [{name: next(gradients) for name in state} for state in leaves]
    return Part(out.detach(), zeros[0], by_expert, zeros[1], indices)


def steps_of(case: MoeCase) -> list[list[Part]]:
    """Parts by step and place, with SGD between the steps."""
    states = [dict(state) for state in case.experts]
    router = case.router
    steps = []
    for step in range(len(case.xs)):
        parts = [
            one_device(case, states, router, step, place) for place in range(len(case.members))
        ]
        steps.append(parts)
        for number, state in enumerate(states):
            for name in state:
                state[name] = state[name] - case.rate * total(parts, number, name)
        router = router - case.rate * torch.stack([part.router for part in parts]).sum(0)
    return steps


def total(parts: Sequence[Part], expert: int, name: str) -> torch.Tensor:
    """An expert's gradient, of all places' tokens."""
    return torch.stack([part.experts[expert][name] for part in parts]).sum(0)
