"""How fast one step of the halves of a block is, beside torch's own tensor parallelism."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from grader.checks import a4_dense as dense
from grader.checks.throughput import Plan, Problem, Throughput, Timed
from grader.harness.throughput import Inputs

RANKS = 2
PLAN = Plan(floor=0.5, full=0.9)
#: (tokens, batch, hidden) by device: products that take milliseconds.
SHAPES = {"cpu": (64, 4, 384), "cuda": (1024, 4, 2048)}
MODULES = {"a4.ParallelMLP": "MLP", "a4.ParallelAttention": "Attention"}
_LAST = {"MLP": "down.weight", "Attention": "output.weight"}
#: Of float32 with some hundred additions to a number, relative to the largest.
_CLOSE = 1e-4


def problem(task: str, ranks: int = RANKS, device: str = "cpu") -> Timed:
    """A step of the task's layer on random numbers; the weights go to the drivers."""
    tokens, batch, hidden = SHAPES[device]
    module = MODULES[task]
    options = {"MLP": {"intermediate": 4 * hidden}, "Attention": {"heads": hidden // 48}}[module]
    of = dense.spec(module.lower(), hidden=hidden, **options)
    rng = torch.Generator().manual_seed(4)
    state = {name: value.float() for name, value in dense.random_state(of, rng).items()}
    last = _LAST[module]
    rows, columns = state[last].shape
    whole = (tokens, batch, hidden)
    outputs = {
        "output": whole,
        "input_gradient": whole,
        "weight_gradient": (rows, columns // ranks),
    }

    def make(numbers: np.random.Generator) -> Inputs:
        x, gradient = (
            torch.from_numpy(numbers.standard_normal(whole, dtype=np.float32)) for _ in range(2)
        )
        empty = {name: torch.zeros(shape) for name, shape in outputs.items()}
        return [{"x": x, "gradient": gradient, **empty} for _ in range(ranks)]

    def expect(inputs: Inputs) -> dict[str, torch.Tensor]:
        x = inputs[0]["x"].clone().requires_grad_()
        leaves = {name: value.clone().requires_grad_(name == last) for name, value in state.items()}
        output = dense.forward(of, leaves, x)
        wanted = torch.autograd.grad(output, (x, leaves[last]), inputs[0]["gradient"])
        return {
            "output": output.detach(),
            "input_gradient": wanted[0],
            "weight_gradient": wanted[1],
        }

    def differs(expected: dict[str, torch.Tensor], tensors: Inputs) -> str | None:
        for rank, buffers in enumerate(tensors):
            for name, wanted in expected.items():
                if name == "weight_gradient":
                    wanted = wanted.chunk(ranks, 1)[rank]
                error = float((buffers[name] - wanted).abs().max() / wanted.abs().max())
                if not error <= _CLOSE:
                    return f"rank {rank}: {name} is off by {error:.2g} of its largest number"
        return None

    layout: dict[str, Any] = {
        name: (shape, torch.float32)
        for name, shape in {"x": whole, "gradient": whole, **outputs}.items()
    }
    given = {
        "task": task,
        "module": module,
        "last": last,
        "options": {"hidden": hidden, **options},
        "state": state,
    }
    return Timed(Problem(layout=layout, make=make, expect=expect, differs=differs), [given] * ranks)


def keeps_up(throughput: Throughput, task: str) -> None:
    """Judge the task's layer against `parallelize_module`."""
    throughput.judge(
        task,
        "timed_tensor:parallel",
        "timed_tensor:library",
        problem(task, device=throughput.device),
        PLAN,
        baseline_name="parallelize_module",
    )
