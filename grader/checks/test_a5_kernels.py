"""The checks of assignment 5's kernels."""

from __future__ import annotations

import pytest
import torch

from grader.checks import kernels_merge_norm as cases
from grader.checks.framework import Award, check
from grader.checks.kernels_run import KernelRunner, kernels
from grader.checks.kernels_speed import judge_speed

__all__ = ["kernels"]

MERGE, NORM = "a5.attention_merge", "a5.layer_norm"
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


@check(MERGE, points=2, name="merges float sides, also those that attended to nothing")
def test_merge_fp32(kernels: KernelRunner, rng: torch.Generator) -> None:
    kernels.judge(MERGE, cases.merge_cases(rng, torch.float32))


@check(MERGE, points=1, name="merges bfloat16 sides in float")
def test_merge_bf16(kernels: KernelRunner, rng: torch.Generator) -> None:
    kernels.judge(MERGE, cases.merge_cases(rng, torch.bfloat16))


@check(MERGE, points=1.5, name="touches only its own memory, in order")
@DTYPES
def test_merge_checked(kernels: KernelRunner, rng: torch.Generator, dtype: torch.dtype) -> None:
    kernels.judge(MERGE, cases.merge_cases(rng, dtype), mode="checked")


@check(MERGE, points=1.5, name="moves data nearly as fast as a copy")
def test_merge_speed(kernels: KernelRunner, award: Award) -> None:
    judge_speed(kernels, award, MERGE, "attention_merge_bf16", full=0.85)


@check(NORM, points=1.5, name="normalizes every row, also far from zero")
@DTYPES
def test_norm_forward(kernels: KernelRunner, rng: torch.Generator, dtype: torch.dtype) -> None:
    kernels.judge(NORM, cases.forward_cases(rng, dtype))


@check(NORM, points=1.5, name="gives input, weight and bias their gradients")
@DTYPES
def test_norm_backward(kernels: KernelRunner, rng: torch.Generator, dtype: torch.dtype) -> None:
    kernels.judge(NORM, cases.backward_cases(rng, dtype))


@check(NORM, points=1.5, name="touches only its own memory, in order")
@DTYPES
def test_norm_checked(kernels: KernelRunner, rng: torch.Generator, dtype: torch.dtype) -> None:
    kernels.judge(NORM, cases.forward_cases(rng, dtype), mode="checked")
    kernels.judge(NORM, cases.backward_cases(rng, dtype), mode="checked")


@check(NORM, points=1.5, name="moves data nearly as fast as a copy")
def test_norm_speed(kernels: KernelRunner, award: Award) -> None:
    names = ("layer_norm_forward_bf16", "layer_norm_backward_bf16")
    judge_speed(kernels, award, NORM, *names, full=0.75)
