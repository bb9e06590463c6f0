"""Cases of `dispatch` and `combine`, and where every token goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from grader.checks.world import Outcome, SimulatedCluster

DISPATCH, COMBINE = "a8.dispatch", "a8.combine"


@dataclass
class Row:
    """A row of expert input: token `token` of place `source`, its choice number `choice`."""

    expert: int
    source: int
    token: int
    choice: int


@dataclass
class Exchange:
    """tokens, indices, …: by place in the group. weights and outputs: for combine.

    gradients: of the rows of every place (None: not taken); upstream: of combine's result.
    """

    label: str
    world: int
    ranks: tuple[int, ...] | None
    experts: int
    tokens: list[torch.Tensor]
    indices: list[torch.Tensor]
    gradients: list[torch.Tensor] | None = None
    weights: list[torch.Tensor] | None = None
    outputs: list[torch.Tensor] | None = None
    upstream: list[torch.Tensor] | None = None
    refused: bool = False
    quiet: bool = False

    @property
    def members(self) -> list[int]:
        """Global ranks, in group order."""
        return list(range(self.world) if self.ranks is None else self.ranks)

    @property
    def size(self) -> int:
        """Ranks of the group."""
        return len(self.members)

    @property
    def per_rank(self) -> int:
        """Experts of a rank."""
        return self.experts // self.size

    def rows(self, place: int) -> list[Row]:
        """The rows of a place, by local expert, then source, then token (then choice)."""
        found = []
        for expert in range(place * self.per_rank, (place + 1) * self.per_rank):
            for source, indices in enumerate(self.indices):
                for token, choice in (indices == expert).nonzero().tolist():
                    found.append(Row(expert, source, token, choice))
        return found

    def pairs(self, source: int, place: int) -> list[int]:
        """Tokens of `source` with at least one expert on `place`."""
        low = place * self.per_rank
        here = (self.indices[source] >= low) & (self.indices[source] < low + self.per_rank)
        tokens: list[int] = here.any(1).nonzero().squeeze(1).tolist()
        return tokens

    def of_rank(self, rank: int) -> dict[str, Any]:
        """The case that the driver of a global rank gets."""
        place = self.members.index(rank) if rank in self.members else 0

        def own(values: Sequence[torch.Tensor] | None) -> torch.Tensor | None:
            if values is None:
                return None
            value = values[place]
            if not value.is_contiguous():
                return value.t().clone(memory_format=torch.contiguous_format).t()
            return value.clone()

        return {
            "tokens": own(self.tokens),
            "indices": own(self.indices),
            "num_experts": self.experts,
            "gradient": own(self.gradients),
            "expert_output": own(self.outputs),
            "weights": own(self.weights),
            "upstream": own(self.upstream),
            "ranks": None if self.ranks is None else list(self.ranks),
            "refused": self.refused,
            "quiet": self.quiet,
            "rows_shape": (len(self.rows(place)), self.tokens[place].shape[-1]),
        }


def run(cluster: SimulatedCluster, task: str, cases: Sequence[Exchange], **options: Any) -> Outcome:
    """Run cases of one world size in one world."""
    inputs = [
        {"task": task, "cases": [case.of_rank(rank) for case in cases]}
        for rank in range(cases[0].world)
    ]
    return cluster.run("a8:exchanges", inputs, task=task, allow=None, **options)


def answers_of(outcome: Outcome, case: Exchange, number: int) -> list[Any]:
    """Answers by place."""
    return [outcome.outputs[rank][number] for rank in case.members]


def exchange(
    rng: torch.Generator,
    world: int,
    ranks: tuple[int, ...] | None = None,
    *,
    per_rank: int = 2,
    k: int = 2,
    counts: Sequence[int] | None = None,
    hidden: int = 3,
    dtype: torch.dtype = torch.float64,
    gradient: bool = False,
    combines: bool = False,
    label: str = "",
    choose: Any = None,
) -> Exchange:
    """A case with random tokens. counts: tokens of each place; choose(place, tokens): indices."""
    size = world if ranks is None else len(ranks)
    experts = size * per_rank
    counts = [(3 + 2 * place) % 8 for place in range(size)] if counts is None else counts

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)

    def any_experts(tokens: int) -> torch.Tensor:
        return torch.rand(tokens, experts, generator=rng).argsort(1)[:, :k]

    indices = [
        any_experts(count) if choose is None else choose(place, any_experts(count))
        for place, count in enumerate(counts)
    ]
    where = f"{world} rank{'s' * (world > 1)}" if ranks is None else f"group {list(ranks)}"
    case = Exchange(
        ", ".join(filter(None, [where, f"{experts} experts, k={k}", label])),
        world,
        ranks,
        experts,
        [random(count, hidden) for count in counts],
        indices,
    )
    if gradient or combines:
        lengths = [len(case.rows(place)) for place in range(size)]
    if gradient:
        case.gradients = [random(rows, hidden) for rows in lengths]
    if combines:
        case.gradients = None
        case.outputs = [random(rows, hidden) for rows in lengths]
        case.weights = [
            torch.rand(count, k, generator=rng, dtype=torch.float64).to(dtype) for count in counts
        ]
        case.upstream = [random(count, hidden) for count in counts] if gradient else None
    return case


def everybody(cases_of: Any, rng: torch.Generator, **options: Any) -> list[list[Exchange]]:
    """The worlds that values are judged in: 1 to 4 ranks, 1 to 3 experts a rank, k of 1 to 3."""
    return [
        [cases_of(rng, 1, per_rank=4, k=2, **options)],
        [
            cases_of(rng, 2, per_rank=2, k=1, **options),
            cases_of(rng, 2, per_rank=3, k=3, **options),
        ],
        [cases_of(rng, 3, per_rank=2, k=2, **options)],
        [
            cases_of(rng, 4, per_rank=1, k=2, **options),
            cases_of(rng, 4, per_rank=2, k=3, **options),
        ],
    ]


# Odd ways to choose -------------------------------------------------------------------------------


def all_to(expert: int) -> Any:
    """Every token chooses this expert only (k must be 1)."""
    return lambda place, indices: torch.full_like(indices, expert)


def same_rank(place: int, indices: torch.Tensor) -> torch.Tensor:
    """Both choices of every token lie on one rank (2 experts a rank)."""
    first = indices[:, :1] // 2 * 2
    return torch.cat([first + 1, first], 1)


def some_dropped(place: int, indices: torch.Tensor) -> torch.Tensor:
    """Some choices, and all of some tokens, are -1."""
    kept = indices.clone()
    kept[::2, 0] = -1
    kept[::3] = -1
    return kept


def odd(rng: torch.Generator, **options: Any) -> list[list[Exchange]]:
    """Ranks without tokens, experts without, one with all, both on one rank, dropped choices."""
    three = [
        exchange(rng, 3, counts=(4, 0, 3), label="a rank without tokens", **options),
        exchange(rng, 3, counts=(0, 0, 5), label="one rank has all tokens", **options),
        exchange(rng, 3, counts=(0, 0, 0), label="no tokens at all", **options),
        exchange(rng, 3, k=1, choose=all_to(3), label="one expert gets all", **options),
        exchange(rng, 3, choose=same_rank, label="both experts on one rank", **options),
        exchange(rng, 3, choose=some_dropped, label="some choices dropped (-1)", **options),
        exchange(rng, 3, per_rank=1, k=3, label="every token to every expert", **options),
    ]
    return [three]
