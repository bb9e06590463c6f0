"""Runs of `train`: layouts, what they should come to, and why they may not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from grader.checks.a9_train_faults import is_near, why_other_curve
from grader.checks.a9_train_model import (
    NO_FAULT,
    SMALL,
    VOCABULARY,
    Fault,
    Layout,
    curve,
    initial,
    is_sharded,
)
from grader.checks.framework import CheckFailed
from grader.checks.real_world import RealWorld
from grader.checks.world import SimulatedCluster
from grader.fabric.trace import Trace

TASK = "a9.train"
Metrics = dict[str, Any]


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
                cause="only the last stage has the loss: it must send it to all ranks, since every "
                "rank returns it"
                if not losses
                else None,
            )
        far = [
            s
            for s, (a, b) in enumerate(zip(losses, expected, strict=True))
            if not is_near(a, b, bound)
        ]
        if not far:
            continue
        step = far[0]
        raise CheckFailed(
            f"{layout}, rank {rank}, step {first + step}: expected the loss of one device, "
            f"{expected[step]:.12g}, got {losses[step]:.12g} (off by "
            f"{abs(losses[step] - expected[step]):.2g}, allowed {bound * expected[step]:.2g})"
            f"{_beside(answers, rank, step, bound)}",
            cause=why_other_curve(losses, layout, config, text, first, bound, faults, cause, step),
        )


def _beside(answers: Sequence[dict[str, Any]], rank: int, step: int, bound: float) -> str:
    """What the other ranks return as the loss of this step."""
    mine = answers[rank]["losses"][step]
    for other, answer in enumerate(answers):
        theirs = (answer["losses"] or [])[step : step + 1]
        if theirs and not is_near(theirs[0], mine, bound):
            return f"; rank {other} returns {theirs[0]:.12g}"
    return "; all ranks return the same" if len(answers) > 1 else ""


def held_instead(failure: CheckFailed, files: dict[str, torch.Tensor], where: str) -> None:
    """Tell of a key that a checkpoint lacks which names like it are in there. where: in words."""
    lack = r"Missing key in checkpoint state_dict: ([\w.]+?)\.?(?:\n|$)"
    missing = re.search(lack, failure.message)
    if missing is None or not files:
        return
    like = re.sub(r"\d+", r"\\d+", re.escape(missing[1])).encode()
    index = b"".join(bytes(f.numpy()) for name, f in files.items() if name.endswith(".metadata"))
    found = sorted({name.decode() for name in re.findall(like, index)})
    failure.message = f"{where}: {failure.message}"
    failure.cause = (
        f"the checkpoint has {' and '.join(found[:2])}, not {missing[1]}: layers are saved under "
        f"numbers that depend on the layout, they must have those of the whole model"
        if found
        else f"no rank has saved {missing[1]}: every rank must save all that it holds, under the "
        f"names of the whole model"
    )


# What a rank holds and sends ---------------------------------------------------------------------


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
    "NO_FAULT", "TASK", "Layout", "Metrics", "configured", "given", "is_sharded",
    "judge_curve", "layer_bytes", "note_fallbacks", "random_text", "run", "sent_by_step",
    "step_bytes", "step_flops",
]  # fmt: skip
