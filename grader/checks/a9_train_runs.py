"""Runs of `train`: layouts, what they should come to, and why they may not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from grader.checks.a9_train_model import (
    NO_FAULT,
    SMALL,
    VOCABULARY,
    Fault,
    batch,
    curve,
    initial,
    loss_of,
)
from grader.checks.framework import CheckFailed
from grader.checks.real_world import RealWorld
from grader.checks.world import SimulatedCluster
from grader.fabric.trace import Trace

TASK = "a9.train"
Metrics = dict[str, Any]


@dataclass(frozen=True)
class Layout:
    """dp × pp × tp ranks."""

    dp: int = 1
    pp: int = 1
    tp: int = 1
    ep: int = 1
    sp: bool = False

    @property
    def ranks(self) -> int:
        """How many."""
        return self.dp * self.pp * self.tp

    @property
    def options(self) -> dict[str, Any]:
        """For `TrainConfig`."""
        return {"dp": self.dp, "pp": self.pp, "tp": self.tp, "ep": self.ep, "sp": self.sp}

    def __str__(self) -> str:
        words = f"(dp, pp, tp) = ({self.dp}, {self.pp}, {self.tp})"
        return words + (" with sp" if self.sp else "") + (f", ep {self.ep}" if self.ep > 1 else "")


def random_text(rng: torch.Generator) -> torch.Tensor:
    """Bytes with something to learn: mostly a few of them, in runs."""
    steps = torch.randint(0, 3, (600,), generator=rng).cumsum(0) % 17
    noise = torch.randint(0, VOCABULARY, (600,), generator=rng)
    rare = torch.rand(600, generator=rng) < 0.1
    return torch.where(rare, noise, steps * 11).to(torch.uint8)


def configured(rng: torch.Generator, **options: Any) -> dict[str, Any]:
    """A configuration of a small model, with a seed of its own."""
    seed = int(torch.randint(0, 1000, (), generator=rng))
    return {**SMALL, "seed": seed, **options}


def given(
    config: dict[str, Any],
    text: torch.Tensor,
    layout: Layout,
    *,
    checkpoint: bool = False,
    files: dict[str, torch.Tensor] | None = None,
    counts: bool = False,
) -> list[dict[str, Any]]:
    """Inputs of the driver, one for each rank."""
    one = {
        "config": config | layout.options,
        "text": text,
        "checkpoint": checkpoint,
        "counts": counts,
    }
    return [one | {"files": (files or {}) if rank == 0 else {}} for rank in range(layout.ranks)]


def run(
    cluster: SimulatedCluster | RealWorld, metrics: Metrics, inputs: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], Trace | None]:
    """Train; the answers by rank, and of simulated ranks the trace. Notes fallbacks."""
    if isinstance(cluster, SimulatedCluster):
        outcome = cluster.run(
            "a9_train:train", inputs, task=TASK, allow=None, time_limit=20.0, wall_seconds=60.0
        )
        answers, trace = outcome.outputs, outcome.trace
    else:
        answers = cluster.run("a9_train:train", inputs, task=TASK, allow=None, wall_seconds=60.0)
        trace = None
    note_fallbacks(metrics, answers[0]["fallbacks"])
    return answers, trace


def note_fallbacks(metrics: Metrics, found: dict[str, str]) -> None:
    """Put into the report which given layers stood in for the student's own."""
    if not found:
        return
    listed = "; ".join(f"{part} ({why})" for part, why in sorted(found.items()))
    note = f"a9.train: given fallbacks were used for {listed}"
    notes = metrics.setdefault("warnings", [])
    if note not in notes:
        notes.append(note)
    metrics.setdefault("fallbacks", {}).update(found)


# Curves ------------------------------------------------------------------------------------------


def judge_curve(
    answers: Sequence[dict[str, Any]],
    layout: Layout,
    config: dict[str, Any],
    text: torch.Tensor,
    bound: float,
    *,
    first: int = 0,
    faults: Sequence[Fault] = (),
    cause: str | None = None,
) -> None:
    """Every rank's losses are those of one device from step `first` on, to `bound`."""
    expected = curve(config, text)[0][first:]
    for rank, answer in enumerate(answers):
        losses = answer["losses"]
        if losses is None or len(losses) != len(expected):
            shown = "no list of numbers" if losses is None else f"{len(losses)} losses"
            raise CheckFailed(
                f"{layout}, rank {rank}: expected a list of {len(expected)} losses (steps {first} "
                f"… {config['steps'] - 1}), got {shown}",
                cause="only the last stage has the loss, and every rank is to return it"
                if not losses
                else None,
            )
        far = [
            s
            for s, (a, b) in enumerate(zip(losses, expected, strict=True))
            if not _near(a, b, bound)
        ]
        if not far:
            continue
        step = far[0]
        raise CheckFailed(
            f"{layout}, rank {rank}, step {first + step}: expected the loss of one device, "
            f"{expected[step]:.12g}, got {losses[step]:.12g} (off by "
            f"{abs(losses[step] - expected[step]):.2g}, allowed {bound * expected[step]:.2g})",
            cause=_why(losses, layout, config, text, first, bound, faults, cause, step),
        )


def _near(a: float, b: float, bound: float) -> bool:
    return abs(a - b) <= bound * max(abs(b), 1.0)


def _why(
    losses: list[float],
    layout: Layout,
    config: dict[str, Any],
    text: torch.Tensor,
    first: int,
    bound: float,
    faults: Sequence[Fault],
    cause: str | None,
    step: int,
) -> str | None:
    # Adam hardly minds how large a gradient is: a wrong curve is known by its last digits only.
    close = bound / 100 if bound < 1e-8 else bound
    for fault in (*faults, *usual_faults(layout, config)):
        wrong = curve(config, text, fault)[0][first:]
        if all(_near(a, b, close) for a, b in zip(losses, wrong, strict=True)):
            return fault.cause
    if cause is not None:
        return cause
    x, y = batch(text, config, first)
    if step == 0 and first == 0:
        if _near(
            losses[0] * config["microbatches"], float(loss_of(initial(config), config, x, y)), bound
        ):
            return "the loss is divided by the number of micro-batches twice"
        return (
            "the loss before the first update is wrong already: the layers are cut, or the batch "
            "is dealt out, differently"
        )
    return _by_layout(layout, config)


def usual_faults(layout: Layout, config: dict[str, Any]) -> list[Fault]:
    """What people get wrong in such a layout."""
    dp, m, ep = layout.dp, config["microbatches"], layout.ep
    found = [
        Fault("the parameters are never updated", frozen=True),
        Fault("weight_decay does not reach the optimizer", decay=False),
        Fault("the gradient is not clipped, or by the norm of a part of it only", clip=False),
        Fault("gradients of micro-batches are summed, not averaged", scale=float(m)),
        Fault("gradients are divided by the number of micro-batches twice", scale=1 / m),
    ]
    if dp > 1:
        found += [
            Fault("gradients are summed over the dp replicas, not averaged", scale=float(dp)),
            Fault("gradients are averaged over the dp replicas twice", scale=1 / dp),
            Fault(EXPERTS_LARGE, expert_scale=float(dp)),
        ]
        for part in range(dp):
            found += [
                Fault("every dp replica trains on the same sequences", share=(part, dp)),
                Fault("the loss is one replica's, not the mean over all", report=(part, dp)),
                replace(
                    Fault("gradients are not averaged over the dp replicas", share=(part, dp)),
                    report=(0, 1),
                ),
            ]
    if ep > 1:
        found += [
            Fault(EXPERTS_LARGE, expert_scale=float(ep)),
            Fault("the experts' gradients are divided too often", expert_scale=1 / ep),
            Fault("the experts' gradients are divided too often", expert_scale=1 / dp),
        ]
    return found


EXPERTS_LARGE = (
    "the experts' gradients are too large: an expert sees the tokens of ep replicas, each of which "
    "takes the mean over its own"
)


def _by_layout(layout: Layout, config: dict[str, Any]) -> str | None:
    if layout.tp > 1 and layout.sp:
        return (
            "with sequence parallelism the ranks of tp see other tokens: gradients of what they "
            "hold alike (norms) are to be summed over tp, those behind a gathered sequence once"
        )
    if layout.tp > 1:
        return (
            "what the ranks of tp hold alike (norms, positions, biases) drifts apart, or shards do"
        )
    if layout.ep > 1 or config["experts"]:
        return "the gradients of experts or router are not those of all tokens"
    if layout.pp > 1:
        return "a stage's gradients are not those of all micro-batches"
    if layout.dp > 1:
        return "gradients are not averaged over the dp replicas"
    return None


# What a rank holds and sends ---------------------------------------------------------------------


def is_sharded(name: str) -> bool:
    """Whether tensor parallelism cuts a parameter."""
    kinds = ("tokens", "query", "key", "value", "up", "attention.output.weight", "down.weight")
    dense = ".experts." not in name and ".router." not in name
    head = name.endswith(".output.weight") and ".attention." not in name
    return dense and (head or any(kind in name for kind in kinds))


def layer_bytes(config: dict[str, Any], layout: Layout) -> list[int]:
    """Bytes that one rank needs to hold of each layer."""
    found = [0.0] * (config["layers"] + 2)
    for name, tensor in initial(config).items():
        nbytes = tensor.numel() * tensor.element_size()
        parts = layout.tp if is_sharded(name) else layout.ep if ".experts." in name else 1
        found[int(name.split(".")[0])] += nbytes / parts
    return [round(each) for each in found]


def step_bytes(config: dict[str, Any], layout: Layout, fallbacks: bool) -> dict[str, float]:
    """Bytes that a rank sends in a step for each dimension of its layout."""
    size = {"float32": 4, "float64": 8}[config["dtype"]]
    tokens = config["sequence"] * config["batch"] // layout.dp
    activations = tokens * config["hidden"] * size
    found: dict[str, float] = {}
    if layout.dp > 1:
        found["dp"] = 2 * (layout.dp - 1) / layout.dp * sum(layer_bytes(config, layout))
    if layout.tp > 1:
        share = 2 * (layout.tp - 1) / layout.tp
        found["tp"] = share * ((4 * config["layers"] + 2) * activations + 4 * tokens * size)
        if fallbacks:
            found["tp"] += share * tokens * VOCABULARY * size
    if layout.pp > 1:
        found["pp"] = 2 * activations if layout.pp > 2 else activations
    return found


def step_flops(config: dict[str, Any]) -> float:
    """FLOPs of the matrix products of a step, forward and backward, on one device."""
    hidden, tokens = config["hidden"], config["sequence"] * config["batch"]
    block = 6 * 12 * hidden * hidden + 12 * config["sequence"] * hidden
    return float(tokens * (config["layers"] * block + 6 * hidden * VOCABULARY))


def sent_by_step(traces: tuple[Trace, Trace], more: int) -> list[float]:
    """Bytes that each rank sent in one step: of two runs, the second `more` steps longer."""
    short, long = (trace.bytes_sent for trace in traces)
    return [(b - a) / more for a, b in zip(short, long, strict=True)]


__all__ = [
    "EXPERTS_LARGE", "NO_FAULT", "TASK", "Layout", "Metrics", "configured", "given", "is_sharded",
    "judge_curve", "layer_bytes", "note_fallbacks", "random_text", "run", "sent_by_step",
    "step_bytes", "step_flops", "usual_faults",
]  # fmt: skip
