"""The layers of assignment 4 as its checks ask for them."""

from __future__ import annotations

from typing import Any

import torch

from grader.checks.a4_cases import LayerCase, layer_case
from grader.checks.a4_dense import spec

COLUMN, ROW = "a4.ColumnParallelLinear", "a4.RowParallelLinear"
EMBEDDING = "a4.VocabParallelEmbedding"
MLP, ATTENTION = "a4.ParallelMLP", "a4.ParallelAttention"
MAKERS = {COLUMN: "from_linear", ROW: "from_linear", EMBEDDING: "from_embedding"}


def linear(
    rng: torch.Generator,
    task: str,
    world: int,
    ranks: tuple[int, ...] | None = None,
    bias: bool = True,
    other: bool = False,
    **more: Any,
) -> LayerCase:
    """A case of a linear layer; other: gather_output, or an input that is whole."""
    size = world if ranks is None else len(ranks)
    column = task == COLUMN
    of = spec("linear", in_features=2 * size, out_features=3 * size, bias=bias)
    options: dict[str, Any] = {}
    if other:
        options = {"gather_output": True} if column else {"input_is_parallel": False}
    words = ["without bias"] * (not bias) + [f"{name}={value}" for name, value in options.items()]
    return layer_case(
        rng, "column" if column else "row", of, world, ranks,
        enters=None if column or other else -1, leaves=-1 if column and not other else None,
        options=options, label=", ".join(words), **more,
    )  # fmt: skip


def embedding(
    rng: torch.Generator, world: int, ranks: tuple[int, ...] | None = None, **more: Any
) -> LayerCase:
    """A case of the embedding."""
    size = world if ranks is None else len(ranks)
    of = spec("embedding", num_embeddings=5 * size, embedding_dim=3)
    return layer_case(rng, "embedding", of, world, ranks, lead=(6, 3), **more)


def mlp(
    rng: torch.Generator,
    world: int,
    ranks: tuple[int, ...] | None = None,
    bias: bool = True,
    **more: Any,
) -> LayerCase:
    """A case of the MLP."""
    size = world if ranks is None else len(ranks)
    of = spec("mlp", hidden=6, intermediate=4 * size, bias=bias)
    label = "" if bias else "without bias"
    return layer_case(rng, "mlp", of, world, ranks, label=label, **more)


def attention(
    rng: torch.Generator,
    world: int,
    ranks: tuple[int, ...] | None = None,
    grouped: int = 2,
    causal: bool = True,
    bias: bool = True,
    p: float = 0.0,
    **more: Any,
) -> LayerCase:
    """A case of the attention. grouped: query heads to a key-value head."""
    size = world if ranks is None else len(ranks)
    of = spec(
        "attention", hidden=6, heads=2 * size * grouped, kv_heads=2 * size, head_dim=3, bias=bias,
        causal=causal, dropout=p,
    )  # fmt: skip
    words = [f"{grouped} query heads to a key-value head"] * (grouped > 1)
    words += ["causal"] * causal + ["without bias"] * (not bias)
    return layer_case(rng, "attention", of, world, ranks, label=", ".join(words), **more)


def make(task: str, rng: torch.Generator, world: int, *ranks: Any, **more: Any) -> LayerCase:
    """A usual case of a task."""
    if task in (COLUMN, ROW):
        return linear(rng, task, world, *ranks, **more)
    return {EMBEDDING: embedding, MLP: mlp, ATTENTION: attention}[task](rng, world, *ranks, **more)


def variants(task: str, rng: torch.Generator, world: int) -> list[LayerCase]:
    """All that a task is asked for, on one world."""
    if task in (COLUMN, ROW):
        flags = [(True, False), (False, False), (True, True), (False, True)]
        return [linear(rng, task, world, None, bias, other) for bias, other in flags]
    if task == EMBEDDING:
        return [embedding(rng, world)]
    if task == MLP:
        return [mlp(rng, world, None, bias) for bias in (True, False)]
    kinds = [(1, True, True), (2, True, True), (3, False, True), (2, False, False)]
    return [attention(rng, world, None, *kind) for kind in kinds]
