"""Cases of `PipelineStage`: modules of every kind, and what their backward must give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from grader.checks import pipeline_models as models
from grader.checks.framework import CheckFailed
from grader.fabric.trace import Trace

#: Models, and for each input: "x" a tensor that wants a gradient, "c" one that wants none, "i"
#: integers.
STAGE_MODELS: dict[str, str] = {
    "shared": "x",
    "views": "x",
    "several inputs": "xxi",
    "in place": "x",
    "partly frozen": "x",
    "no parameters": "x",
    "identity": "x",
    "embedding": "i",
    "carry": "xc",
    "perceptron": "c",
    "block": "x",
}

#: What ends a micro-batch, in words.
FREED_MODES = {"B": "backward", "IW": "backward_input and backward_weight"}

_BOUND = 1e-12  # of the largest value, in float64: a few hundred roundings


@dataclass
class StageCase:
    """What a driver is given, and what is expected to come back."""

    label: str
    given: dict[str, Any]
    outputs: list[list[torch.Tensor]]
    input_gradients: list[list[torch.Tensor | None]]
    parameters: dict[str, torch.Tensor | None]


def stage_case(rng: torch.Generator, name: str, mode: str) -> StageCase:
    """Three micro-batches of different lengths through the module `name`."""
    kinds = STAGE_MODELS.get(name, "x")
    state = models.random_state(name, rng)
    module = models.build(name, state)
    given: dict[str, Any] = {
        "model": name,
        "state": state,
        "mode": mode,
        "requires": [kind == "x" for kind in kinds],
        "inputs": [],
        "gradients": [],
    }
    case = StageCase(f"stage {name!r}, {mode}", given, [], [], {})
    for rows in (4, 3, 4):
        inputs = [_random(rng, kind, rows) for kind in kinds]
        leaves = [
            t.clone().requires_grad_(kind == "x") for t, kind in zip(inputs, kinds, strict=True)
        ]
        entering = [t.view_as(t) if not t.requires_grad else t * 1.0 for t in leaves]
        returned = module(*entering)
        outputs = list(returned) if isinstance(returned, tuple) else [returned]
        gradients: list[torch.Tensor | None] = [
            torch.randn(y.shape, generator=rng, dtype=torch.float64) if y.requires_grad else None
            for y in outputs
        ]
        if name == "views":
            gradients[1] = None  # an output that the loss does not depend on
        flowing = [(y, g) for y, g in zip(outputs, gradients, strict=True) if g is not None]
        if flowing:
            torch.autograd.backward([y for y, _ in flowing], [g for _, g in flowing])
        given["inputs"].append(inputs)
        given["gradients"].append(gradients)
        case.outputs.append([y.detach().clone() for y in outputs])
        case.input_gradients.append([leaf.grad for leaf in leaves])
    case.parameters = {n: p.grad for n, p in module.named_parameters()}
    return case


def _random(rng: torch.Generator, kind: str, rows: int) -> torch.Tensor:
    if kind == "i":
        return torch.randint(5, (rows,), generator=rng)
    return torch.randn(rows, models.WIDTH, generator=rng, dtype=torch.float64)


def expect_stage(case: StageCase, answer: dict[str, Any]) -> None:
    """Outputs, gradients of inputs and parameters, and none of the latter too early."""
    for number, (got, exact) in enumerate(zip(answer["outputs"], case.outputs, strict=True)):
        where = f"{case.label}, micro-batch {number}"
        if len(got) != len(exact):
            raise CheckFailed(f"{where}: expected {len(exact)} outputs, got {len(got)}")
        for place, (g, e) in enumerate(zip(got, exact, strict=True)):
            _equal(g, e, f"{where}, output {place}", None)
    gradients = zip(answer["input_gradients"], case.input_gradients, strict=True)
    for number, (found, wanted) in enumerate(gradients):
        where = f"{case.label}, micro-batch {number}"
        if len(found) != len(wanted):
            raise CheckFailed(
                f"{where}: expected one gradient for each of {len(wanted)} inputs, got {len(found)}"
            )
        for place, (g, w) in enumerate(zip(found, wanted, strict=True)):
            _equal(g, w, f"{where}, gradient of input {place}", None)
    if answer["early"]:
        raise CheckFailed(
            f"{case.label}: after the first backward_input {answer['early'][0]} has a gradient "
            f"already",
            cause="backward_input computes weight gradients too: they are backward_weight's work",
        )
    for name, expected_gradient in case.parameters.items():
        _equal(
            answer["parameters"][name],
            expected_gradient,
            f"{case.label}, gradient of {name} after three micro-batches",
            _why_parameter(case, name, answer["parameters"][name]),
        )


def _why_parameter(case: StageCase, name: str, got: Any) -> str:
    if got is None:
        return "backward_weight leaves this parameter out"
    if "shared" in case.label:
        return "of a parameter that is used several times only some uses count, or some count twice"
    return "backward_weight computes another gradient than one whole backward"


def _equal(got: Any, expected: torch.Tensor | None, where: str, cause: str | None) -> None:
    if expected is None or got is None:
        zero = isinstance(got, torch.Tensor) and not bool(got.any())
        if (got is None) == (expected is None) or zero:
            return
        if expected is not None and not bool(expected.any()):
            return
        raise CheckFailed(f"{where}: expected {_shown(expected)}, got {_shown(got)}", cause=cause)
    if not isinstance(got, torch.Tensor) or got.shape != expected.shape:
        raise CheckFailed(f"{where}: expected {_shown(expected)}, got {_shown(got)}", cause=cause)
    if got.dtype != expected.dtype:
        raise CheckFailed(f"{where}: expected {expected.dtype}, got {got.dtype}")
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    error = float((got - expected).abs().max()) if expected.numel() else 0.0
    if not error <= _BOUND * max(scale, 1.0):
        raise CheckFailed(
            f"{where}: largest error {error:.3g}, largest value {scale:.3g}", cause=cause
        )


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"


def total_flops(trace: Trace) -> int:
    """FLOPs that rank 0 computed in the solution's code."""
    return sum(e.flops for e in trace.record.events[0] if e.kind == "compute" and e.region)
