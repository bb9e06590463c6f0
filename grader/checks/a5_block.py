"""Checks of the norm and the block of sequence parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from grader.checks import a4_volume as volume
from grader.checks.a4_cases import LayerCase, by_world, layer_case, run_cases
from grader.checks.a4_dense import spec
from grader.checks.a4_judges import judge_layer
from grader.checks.framework import CheckFailed
from grader.checks.world import SimulatedCluster
from grader.fabric.record import Operation

BLOCK = "a5.SequenceParallelBlock"


def norm(
    rng: torch.Generator, world: int, ranks: tuple[int, ...] | None = None, **more: Any
) -> LayerCase:
    """A case of the norm; `bias` and `elementwise_affine` as nn.LayerNorm takes them."""
    size = world if ranks is None else len(ranks)
    flags = {name: more.pop(name) for name in ("bias", "elementwise_affine") if name in more}
    label = ", ".join(f"{name}={value}" for name, value in flags.items())
    of = spec("norm", normalized_shape=5, **flags)
    return layer_case(
        rng, "norm", of, world, ranks, lead=(2 * size, 2), enters=0, leaves=0, label=label, **more
    )


def block(
    rng: torch.Generator,
    world: int,
    ranks: tuple[int, ...] | None = None,
    *,
    grouped: int = 1,
    bias: bool = True,
    causal: bool = True,
    p: float = 0.0,
    attention_p: float = 0.0,
    hidden: int = 6,
    head_dim: int = 3,
    lead: tuple[int, int] | None = None,
    **more: Any,
) -> LayerCase:
    """A case of the block. grouped: query heads to a key-value head."""
    size = world if ranks is None else len(ranks)
    of = spec(
        "block",
        hidden=hidden,
        dropout=p,
        attention={
            "hidden": hidden, "heads": size * grouped, "kv_heads": size, "head_dim": head_dim,
            "bias": bias, "causal": causal, "dropout": attention_p,
        },
        mlp={"hidden": hidden, "intermediate": 4 * size, "bias": bias},
    )  # fmt: skip
    words = [f"{grouped} query heads to a key-value head"] * (grouped > 1)
    words += ["causal"] * causal + ["without bias"] * (not bias)
    return layer_case(
        rng, "block", of, world, ranks, lead=lead or (2 * size, 2), enters=0, leaves=0,
        label=", ".join(words), **more,
    )  # fmt: skip


def run_judged(cluster: SimulatedCluster, task: str, cases: Sequence[LayerCase]) -> None:
    """Run cases and judge their values."""
    for here in by_world(cases):
        outcome = run_cases(cluster, task, here)
        for number, case in enumerate(here):
            judge_layer(case, [answers and answers[number] for answers in outcome.outputs])


def judge_block_bytes(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: dict[str, Any]
) -> None:
    """Forward: what two all-reduces send. Backward: the same, one all-gather per half for the input
    that was not kept, and the gradients of what is replicated."""
    world = 4
    case = block(rng, world, hidden=8, lead=(16, 2))
    outcome = run_cases(cluster, BLOCK, [case])
    whole = case.xs[0].numel() * 8
    tensor_parallel = 2 * volume.moved("all_reduce", whole, world)
    # Norms, and the biases of the layers that are cut by rows.
    replicated = 6 * 8 * 8
    again = 2 * volume.moved("all_gather", whole, world)
    extra = volume.moved("all_reduce", replicated, world) + 16
    for rank, (answer,) in enumerate(outcome.outputs):
        forward, backward = volume.phases(outcome.trace, rank, answer["steps"][0]["marks"])
        where = f"{case.label}: rank {rank}"
        metrics["forward_bytes"] = volume.expect_phase(
            forward, world, tensor_parallel, f"{where}, forward",
            "two all-gathers and two reduce-scatters, as much as two all-reduces",
            _cause(forward, 2),
        )  # fmt: skip
        metrics["backward_bytes"] = volume.expect_phase(
            backward, world, tensor_parallel + again + extra, f"{where}, backward",
            "as much as forward, one all-gather per half, and gradients of what is replicated",
            _cause(backward, 4),
        )  # fmt: skip
        metrics["tensor_parallel_bytes"] = tensor_parallel
    judge_layer(case, [answers[0] for answers in outcome.outputs])


def _cause(operations: Sequence[Operation], gathers: int) -> str | None:
    if sum(op.kind == "all_reduce" and op.nbytes > 1024 for op in operations):
        return "an all-reduce of activations: a reduce-scatter sends half of it"
    if sum(op.kind == "all_gather" for op in operations) > gathers:
        return "query, key and value each gather the input: gather once for all three"
    if sum(op.kind == "reduce_scatter" for op in operations) > 2:
        return "query, key and value each scatter a gradient: add them up first"
    return None


def judge_saved(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: dict[str, Any], world: int
) -> None:
    """Bytes kept for backward: at most 1.05 × the dense block's ÷ ranks."""
    case = block(rng, world, hidden=64, head_dim=64 // world, lead=(64, 2))
    case.spec["options"]["mlp"]["intermediate"] = 256
    case = layer_case(
        rng, "block", case.spec, world, lead=(64, 2), enters=0, leaves=0, label="activations"
    )
    inputs = [
        {
            "task": BLOCK,
            "maker": "from_dense",
            "case": case.of_rank(rank) | {"whole": case.xs[0]},
        }
        for rank in range(world)
    ]
    outcome = cluster.run("a4:saved", inputs, task=BLOCK, allow=None)
    for rank, figures in enumerate(outcome.outputs):
        allowed = 1.05 * figures["dense"] / world
        metrics[f"saved_on_{world}_ranks"] = figures["parallel"]
        metrics[f"allowed_on_{world}_ranks"] = round(allowed)
        if figures["parallel"] > allowed:
            whole = case.xs[0].numel() * 8
            over = figures["parallel"] - figures["dense"] / world
            cause = None
            if over >= 0.7 * whole * (1 - 1 / world):
                cause = (
                    f"about {over / (whole * (1 - 1 / world)):.1f} gathered inputs are kept: keep "
                    f"this rank's share and gather it again in backward"
                )
            raise CheckFailed(
                f"{world} ranks: rank {rank} keeps {figures['parallel']} bytes for backward, the "
                f"dense block {figures['dense']}; expected at most 1.05 × {figures['dense']} ÷ "
                f"{world} = {allowed:.0f}",
                cause=cause,
            )
