"""The checks of assignment 3's kernel."""

from __future__ import annotations

import torch

from grader.checks import kernels_adamw
from grader.checks.framework import Award, check
from grader.checks.kernels_run import KernelRunner, kernels
from grader.checks.kernels_speed import judge_speed

__all__ = ["kernels"]

TASK = "a3.adamw"


@check(TASK, points=3.5, name="steps float parameters, at any length and alignment")
def test_adamw_fp32(kernels: KernelRunner, rng: torch.Generator) -> None:
    kernels.judge(TASK, kernels_adamw.cases(rng, torch.float32))


@check(TASK, points=2, name="steps bfloat16 parameters in float and rounds once")
def test_adamw_bf16(kernels: KernelRunner, rng: torch.Generator) -> None:
    kernels.judge(TASK, kernels_adamw.cases(rng, torch.bfloat16))


@check(TASK, points=2, name="touches only its own memory, in order")
def test_adamw_checked(kernels: KernelRunner, rng: torch.Generator) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        cases = kernels_adamw.cases(rng, dtype, kernels_adamw.CHECKED)
        kernels.judge(TASK, cases, mode="checked")


@check(TASK, points=2.5, name="moves data nearly as fast as a copy")
def test_adamw_speed(kernels: KernelRunner, award: Award) -> None:
    judge_speed(kernels, award, TASK, "adamw_bf16", full=0.85)
