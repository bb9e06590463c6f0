"""The checks of assignment 2's kernel."""

from __future__ import annotations

import torch

from grader.checks import kernels_reduce_add
from grader.checks.framework import Award, check
from grader.checks.kernels_run import KernelRunner, kernels
from grader.checks.kernels_speed import judge_speed

__all__ = ["kernels"]

TASK = "a2.reduce_add"


@check(TASK, points=4, name="adds every float, at any length and alignment")
def test_reduce_add_fp32(kernels: KernelRunner, rng: torch.Generator) -> None:
    kernels.judge(TASK, kernels_reduce_add.cases(rng, torch.float32))


@check(TASK, points=2, name="adds bfloat16 in float and rounds once")
def test_reduce_add_bf16(kernels: KernelRunner, rng: torch.Generator) -> None:
    kernels.judge(TASK, kernels_reduce_add.cases(rng, torch.bfloat16))


@check(TASK, points=3, name="touches only its own memory, in order")
def test_reduce_add_checked(kernels: KernelRunner, rng: torch.Generator) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        lengths = kernels_reduce_add.CHECKED
        kernels.judge(TASK, kernels_reduce_add.cases(rng, dtype, lengths), mode="checked")


@check(TASK, points=3, name="moves data nearly as fast as a copy")
def test_reduce_add_speed(kernels: KernelRunner, award: Award) -> None:
    judge_speed(kernels, award, TASK, "reduce_add_bf16", full=0.85)
