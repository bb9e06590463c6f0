"""The checks of assignment 4's kernels."""

from __future__ import annotations

import pytest
import torch

from grader.checks import kernels_vocab
from grader.checks.framework import Award, check
from grader.checks.kernels_run import KernelRunner, kernels
from grader.checks.kernels_speed import judge_speed

__all__ = ["kernels"]

TASK = "a4.vocab_cross_entropy"
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


@check(TASK, points=3, name="finds maximum, sum of exponentials and the target's logit")
@DTYPES
def test_forward(kernels: KernelRunner, rng: torch.Generator, dtype: torch.dtype) -> None:
    kernels.judge(TASK, kernels_vocab.forward_cases(rng, dtype))


@check(TASK, points=2.5, name="gives every logit of the shard its gradient")
@DTYPES
def test_backward(kernels: KernelRunner, rng: torch.Generator, dtype: torch.dtype) -> None:
    kernels.judge(TASK, kernels_vocab.backward_cases(rng, dtype))


@check(TASK, points=2, name="touches only its own memory, in order")
@DTYPES
def test_checked(kernels: KernelRunner, rng: torch.Generator, dtype: torch.dtype) -> None:
    kernels.judge(TASK, kernels_vocab.forward_cases(rng, dtype), mode="checked")
    kernels.judge(TASK, kernels_vocab.backward_cases(rng, dtype), mode="checked")


@check(TASK, points=2.5, name="moves data nearly as fast as a copy")
def test_speed(kernels: KernelRunner, award: Award) -> None:
    names = ("vocab_cross_entropy_forward_bf16", "vocab_cross_entropy_backward_bf16")
    judge_speed(kernels, award, TASK, *names, full=0.75)
