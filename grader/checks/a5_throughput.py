"""How fast the overlapped products are, beside the product and the collective one after the other.

Measured where every rank has a GPU: on a CPU the collective takes the cores from the product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from grader.checks.throughput import Plan, Problem, Throughput, Timed
from grader.harness.throughput import Inputs

RANKS = 2
PLAN = Plan(floor=1.0, full=1.2)
#: (rows M, inner K, columns N, dtype) of the whole product by device.
SHAPES = {
    "cpu": (256, 512, 384, torch.float32),
    "cuda": (8192, 8192, 8192, torch.bfloat16),
}
#: Columns that are verified in each step; which ones nobody knows before.
_COLUMNS = 64
#: Relative to the largest number: a sum of K products, rounded once a rank to the dtype.
_CLOSE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
SUM_OF_ROWS, ROWS_OF_ALL = "a5.matmul_reduce_scatter", "a5.all_gather_matmul"


def problem(task: str, ranks: int = RANKS, device: str = "cpu") -> Timed:
    """Random factors for the task's product; the buffer "result" is what each rank is to have."""
    rows, inner, columns, dtype = SHAPES[device]
    if task == SUM_OF_ROWS:
        shapes = {"a": (rows, inner // ranks), "b": (inner // ranks, columns)}
        result = (rows // ranks, columns)
    else:
        shapes = {"a": (rows // ranks, inner), "b": (inner, columns // ranks)}
        result = (rows, columns // ranks)

    def make(numbers: np.random.Generator) -> Inputs:
        return [
            {
                name: torch.from_numpy(numbers.standard_normal(shape, dtype=np.float32)).to(dtype)
                for name, shape in shapes.items()
            }
            for _ in range(ranks)
        ]

    def expect(inputs: Inputs) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """By rank: places of columns, and what stands there."""
        chosen = torch.randperm(result[1])[:_COLUMNS]
        if task == ROWS_OF_ALL:
            a = torch.cat([each["a"] for each in inputs]).float()
            return [(chosen, a @ each["b"][:, chosen].float()) for each in inputs]
        parts = [each["a"].float() @ each["b"][:, chosen].float() for each in inputs]
        whole = torch.stack(parts).sum(0)
        return [(chosen, share) for share in whole.chunk(ranks)]

    def differs(expected: list[tuple[torch.Tensor, torch.Tensor]], tensors: Inputs) -> str | None:
        for rank, ((chosen, wanted), buffers) in enumerate(zip(expected, tensors, strict=True)):
            got = buffers["result"][:, chosen].float()
            error = float((got - wanted).abs().max() / wanted.abs().max())
            if not error <= _CLOSE[dtype]:
                return f"rank {rank}: the product is off by {error:.2g} of its largest number"
        return None

    layout: dict[str, Any] = {
        name: (shape, dtype) for name, shape in {**shapes, "result": result}.items()
    }
    given = {"task": task}
    return Timed(Problem(layout=layout, make=make, expect=expect, differs=differs), [given] * ranks)


def is_faster(throughput: Throughput, task: str, only: str | None = "cuda") -> None:
    """Judge the task's function against product and collective one after the other."""
    throughput.judge(
        task,
        "timed_products:overlapped",
        "timed_products:one_after_the_other",
        problem(task, device=throughput.device),
        PLAN,
        baseline_name="the product, then the collective",
        only=only,
    )
