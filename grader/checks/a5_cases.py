"""Calls of assignment 5's functions as cases, and what one device makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from grader.checks import a4_dense as dense
from grader.checks.a4_cases import share
from grader.checks.world import Outcome, SimulatedCluster


@dataclass
class CallCase:
    """A call on `world` ranks of which `ranks` (in group order; None: all) take part.

    tensors, gradients: by group rank; gradients is None where none is taken. more: positional
    arguments after the tensors. judge(case, answers): answers by group rank.
    """

    label: str
    world: int
    ranks: tuple[int, ...] | None
    tensors: list[list[torch.Tensor]]
    gradients: list[torch.Tensor] | None = None
    more: tuple[Any, ...] = ()
    judge: Callable[[CallCase, Sequence[Any]], None] | None = None
    refused: bool = False
    no_group: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def members(self) -> list[int]:
        """Global ranks, in group order."""
        return list(range(self.world) if self.ranks is None else self.ranks)

    def of_rank(self, rank: int) -> dict[str, Any]:
        """The case that the driver of a global rank gets."""
        place = self.members.index(rank) if rank in self.members else 0
        return {
            "tensors": [tensor.clone() for tensor in self.tensors[place]],
            "more": list(self.more),
            "named": {k: v for k, v in self.facts.items() if k == "chunks"},
            "gradient": None if self.gradients is None else self.gradients[place].clone(),
            "ranks": None if self.ranks is None else list(self.ranks),
            "refused": self.refused,
            "no_group": self.no_group,
        }


def run(cluster: SimulatedCluster, task: str, cases: Sequence[CallCase], **options: Any) -> Outcome:
    """Run cases of one world size in one world, and judge those that have a judge."""
    inputs = [
        {"task": task, "cases": [case.of_rank(rank) for case in cases]}
        for rank in range(cases[0].world)
    ]
    outcome = cluster.run("a5:calls", inputs, task=task, allow=None, **options)
    for number, case in enumerate(cases):
        if case.judge is not None:
            case.judge(case, [outcome.outputs[rank][number] for rank in case.members])
    return outcome


def run_all(cluster: SimulatedCluster, task: str, cases: Sequence[CallCase]) -> None:
    """Run cases, those of one world size together."""
    for world in sorted({case.world for case in cases}):
        run(cluster, task, [case for case in cases if case.world == world])


def words(world: int, ranks: tuple[int, ...] | None, *more: str) -> str:
    """ "3 ranks, causal", "group [3, 0, 2]"."""
    where = f"{world} rank{'s' * (world > 1)}" if ranks is None else f"group {list(ranks)}"
    return ", ".join(filter(None, [where, *more]))


# products -----------------------------------------------------------------------------------------


def product(
    rng: torch.Generator,
    scatters: bool,
    world: int,
    ranks: tuple[int, ...] | None = None,
    *,
    rows: int = 6,
    inner: int = 2,
    columns: int = 3,
    more: tuple[Any, ...] = (),
    gradient: bool = True,
    label: str = "",
) -> CallCase:
    """A product. scatters: a (M, K/n), b (K/n, N) to rows; else a (M/n, K), b (K, N/n) to columns.

    rows: of one share of M. inner, columns: K / n and N, or K and N / n.
    """
    size = world if ranks is None else len(ranks)
    whole_inner = inner * size if scatters else inner
    whole_columns = columns if scatters else columns * size
    a = torch.randn(rows * size, whole_inner, generator=rng, dtype=torch.float64)
    b = torch.randn(whole_inner, whole_columns, generator=rng, dtype=torch.float64)
    g = torch.randn(rows * size, whole_columns, generator=rng, dtype=torch.float64)
    cut_a, cut_b, cut_g = (1, 0, 0) if scatters else (0, 1, 1)
    return CallCase(
        words(world, ranks, label),
        world,
        ranks,
        [[share(a, cut_a, i, size), share(b, cut_b, i, size)] for i in range(size)],
        [share(g, cut_g, i, size) for i in range(size)] if gradient else None,
        more,
        facts={"a": a, "b": b, "g": g, "cuts": (cut_a, cut_b, cut_g)},
    )


# attention ----------------------------------------------------------------------------------------


def zigzag_chunks(place: int, size: int) -> tuple[int, int]:
    """The two of 2n chunks that a group rank holds."""
    return place, 2 * size - 1 - place


def cut(tensor: torch.Tensor, place: int, size: int, layout: str, dim: int = 2) -> torch.Tensor:
    """A group rank's share of a sequence."""
    if layout == "contiguous":
        return share(tensor, dim, place, size)
    chunks = tensor.chunk(2 * size, dim)
    return torch.cat([chunks[i] for i in zigzag_chunks(place, size)], dim)


def attention(
    rng: torch.Generator,
    world: int,
    ranks: tuple[int, ...] | None = None,
    *,
    causal: bool,
    layout: str,
    length: int = 2,
    batch: int = 2,
    heads: int = 2,
    grouped: int = 1,
    head_dim: int = 3,
    gradient: bool = True,
    dtype: torch.dtype = torch.float64,
) -> CallCase:
    """`length` tokens on each rank. heads: of keys; grouped: query heads to each."""
    size = world if ranks is None else len(ranks)
    tokens = length * size

    def random(count: int) -> torch.Tensor:
        shape = (batch, count, tokens, head_dim)
        return torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)

    q, k, v, g = random(heads * grouped), random(heads), random(heads), random(heads * grouped)
    mask = [f"causal, {layout}"] if causal else [layout]
    groups = [f"{grouped} query heads to a key-value head"] * (grouped > 1)
    return CallCase(
        words(world, ranks, *mask, f"{tokens} tokens", *groups),
        world,
        ranks,
        [[cut(t, i, size, layout) for t in (q, k, v)] for i in range(size)],
        [cut(g, i, size, layout) for i in range(size)] if gradient else None,
        (causal, layout),
        facts={"q": q, "k": k, "v": v, "g": g, "layout": layout, "causal": causal},
    )


@dataclass
class Whole:
    """What one device makes of an attention: output, and gradients of q, k and v."""

    out: torch.Tensor
    gradients: list[torch.Tensor]


def whole_attention(case: CallCase) -> Whole:
    """Attention over the whole sequence in float64."""
    leaves = [case.facts[name].double().requires_grad_() for name in ("q", "k", "v")]
    out, _ = dense.attention(leaves[0], leaves[1], leaves[2], case.facts["causal"])
    gradients = torch.autograd.grad(out, leaves, case.facts["g"].double())
    return Whole(out.detach(), list(gradients))
