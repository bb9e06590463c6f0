"""The checks of assignment 8's kernels."""

from __future__ import annotations

import pytest
import torch

from grader.checks import kernels_moe as cases
from grader.checks.framework import Award, check
from grader.checks.kernels_run import KernelRunner, kernels
from grader.checks.kernels_speed import judge_speed

__all__ = ["kernels"]

PERMUTE, UNPERMUTE = "a8.moe_permute", "a8.moe_unpermute"
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


@check(PERMUTE, points=1.5, name="counts the assignments of every expert")
def test_count(kernels: KernelRunner, rng: torch.Generator) -> None:
    kernels.judge(PERMUTE, cases.count_cases(rng))


@check(PERMUTE, points=2, name="finds stable positions")
def test_position(kernels: KernelRunner, rng: torch.Generator) -> None:
    kernels.judge(PERMUTE, cases.position_cases(rng))


@check(PERMUTE, points=1.5, name="moves every row to its place")
@DTYPES
def test_permute(kernels: KernelRunner, rng: torch.Generator, dtype: torch.dtype) -> None:
    kernels.judge(PERMUTE, cases.permute_cases(rng, dtype))


@check(PERMUTE, points=1.75, name="touches only its own memory, in order")
def test_permute_checked(kernels: KernelRunner, rng: torch.Generator) -> None:
    kernels.judge(PERMUTE, cases.count_cases(rng), mode="checked")
    kernels.judge(PERMUTE, cases.position_cases(rng), mode="checked")
    for dtype in (torch.float32, torch.bfloat16):
        kernels.judge(PERMUTE, cases.permute_cases(rng, dtype), mode="checked")


@check(PERMUTE, points=2.25, name="moves data nearly as fast as a copy")
def test_permute_speed(kernels: KernelRunner, award: Award) -> None:
    judge_speed(kernels, award, PERMUTE, "moe_permute_bf16", full=0.75)


@check(UNPERMUTE, points=3, name="sums float rows by weight")
def test_unpermute_fp32(kernels: KernelRunner, rng: torch.Generator) -> None:
    kernels.judge(UNPERMUTE, cases.unpermute_cases(rng, torch.float32))


@check(UNPERMUTE, points=2, name="sums bfloat16 rows in float and rounds once")
def test_unpermute_bf16(kernels: KernelRunner, rng: torch.Generator) -> None:
    kernels.judge(UNPERMUTE, cases.unpermute_cases(rng, torch.bfloat16))


@check(UNPERMUTE, points=1.75, name="touches only its own memory, in order")
@DTYPES
def test_unpermute_checked(kernels: KernelRunner, rng: torch.Generator, dtype: torch.dtype) -> None:
    kernels.judge(UNPERMUTE, cases.unpermute_cases(rng, dtype), mode="checked")


@check(UNPERMUTE, points=2.25, name="moves data nearly as fast as a copy")
def test_unpermute_speed(kernels: KernelRunner, award: Award) -> None:
    judge_speed(kernels, award, UNPERMUTE, "moe_unpermute_bf16", full=0.75)
