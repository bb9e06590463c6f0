"""How fast one step of data-parallel training is, beside torch's own DistributedDataParallel.

The model is deep and its layers are small: a collective for each parameter costs more than the
step itself, a few for buckets of many cost little.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from grader.checks.throughput import Plan, Problem, Throughput, Timed
from grader.checks.timed_models import Deep, flat_gradients
from grader.harness.throughput import Inputs

TASK = "a3.DistributedDataParallel"
RANKS = 4
PLAN = Plan(floor=0.4, full=0.8)
#: (layers, width, rows) by device: 2 MiB and 100 MiB of parameters.
SHAPES = {"cpu": (64, 88, 16), "cuda": (96, 512, 512)}
#: Of float32, relative to the largest gradient: sums of some hundred products, four ranks.
_CLOSE = 1e-4


def problem(ranks: int = RANKS, device: str = "cpu") -> Timed:
    """A step of `Deep` on other rows on every rank; the weights go to the drivers."""
    layers, width, rows = SHAPES[device]
    torch.manual_seed(3)
    model = Deep(layers, width)
    state = dict(model.state_dict())
    numel = sum(parameter.numel() for parameter in model.parameters())
    shape = (rows, width)

    def make(numbers: np.random.Generator) -> Inputs:
        return [
            {
                name: torch.from_numpy(numbers.standard_normal(shape, dtype=np.float32))
                for name in ("x", "target")
            }
            for _ in range(ranks)
        ]

    def expect(inputs: Inputs) -> torch.Tensor:
        # The mean over ranks of means over equally many rows is the mean over all rows.
        x, target = (torch.cat([each[name] for each in inputs]) for name in ("x", "target"))
        return flat_gradients(model, x, target)

    def differs(expected: torch.Tensor, tensors: Inputs) -> str | None:
        largest = float(expected.abs().max())
        for rank, buffers in enumerate(tensors):
            error = float((buffers["gradients"] - expected).abs().max()) / largest
            if not error <= _CLOSE:
                return f"rank {rank}: the gradients are off by {error:.2g} of the largest"
        return None

    layout: dict[str, Any] = {
        "x": (shape, torch.float32),
        "target": (shape, torch.float32),
        "gradients": ((numel,), torch.float32),
    }
    given = {"task": TASK, "layers": layers, "width": width, "state": state}
    return Timed(Problem(layout=layout, make=make, expect=expect, differs=differs), [given] * ranks)


def keeps_up(throughput: Throughput) -> None:
    """Judge the student's wrapper against torch's."""
    throughput.judge(
        TASK,
        "timed_training:data_parallel",
        "timed_training:library_data_parallel",
        problem(device=throughput.device),
        PLAN,
        baseline_name="torch's DistributedDataParallel",
    )
