"""Cases of `adamw`: lengths, alignments of four operands, hyperparameters that show mistakes."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from grader.checks.compare import assert_close
from grader.checks.kernels_run import SHAPES, Case, Outputs, begins, mixed, normal, suffix
from grader.checks.kernels_suspects import (
    Suspect,
    alike,
    cause_of_rounding,
    kept_in_bf16,
    left_out,
    quoted,
)

LENGTHS = (*range(20), 31, 32, 33, 63, 65, 255, 257, 1000, 4099, 20011)
CHECKED = (0, 1, 3, 7, 8, 9, 33, 257, 1000)
#: Elements by which param, grad, exp_avg, exp_avg_sq lie off a multiple of 256 bytes.
SHIFTS = ((0, 0, 0, 0), (1, 1, 1, 1), (4, 4, 0, 0), (0, 0, 1, 0), (8, 0, 4, 12), (3, 3, 3, 2))
#: lr, beta1, beta2, eps, weight_decay, step
HYPER = (
    (1e-2, 0.9, 0.999, 1e-8, 0.1, 1),
    (3e-1, 0.75, 0.9375, 1e-3, 0.5, 7),
    (1e-3, 0.9, 0.95, 1e-8, 0.0, 1000),
)
_OPERATIONS = 16  # roundings on the longest way from an operand to the new parameter


def cases(
    rng: torch.Generator, dtype: torch.dtype, lengths: tuple[int, ...] = LENGTHS
) -> list[Case]:
    """Launches over `lengths`, alignments, hyperparameters and launch shapes in turn."""
    made = [
        _case(rng, dtype, n, SHIFTS[i % 6], HYPER[i % 3], SHAPES[i % 4])
        for i, n in enumerate(lengths)
    ]
    return made + [
        _case(rng, dtype, 1021, shift, HYPER[i % 3], SHAPES[i % 4])
        for i, shift in enumerate(SHIFTS)
    ]


def _case(
    rng: torch.Generator,
    dtype: torch.dtype,
    n: int,
    shift: tuple[int, ...],
    hyper: tuple[float, ...],
    shape: tuple[int, int],
) -> Case:
    param, grad = normal(rng, n, dtype=dtype), normal(rng, n, dtype=dtype)
    m, v = 0.3 * normal(rng, n), normal(rng, n).square()
    lr, beta1, beta2, eps, decay, step = hyper
    # The kernel gets floats: what they are rounded to is what it is judged by.
    numbers = [lr, beta1, beta2, eps, decay, 1 - beta1**step, 1 - beta2**step]
    rounded = torch.tensor(numbers, dtype=torch.float32).double().tolist()
    return Case(
        f"adamw_{suffix(dtype)}",
        [param, grad, m, v, n, *rounded],
        partial(_judge, (param, grad, m, v), rounded, shape),
        f"n = {n}, step {step}, "
        + begins(param=shift[0], grad=shift[1], exp_avg=shift[2], exp_avg_sq=shift[3]),
        shape,
        (*shift, *[0] * 8),
    )


def _judge(
    before: tuple[torch.Tensor, ...], hyper: list[float], shape: tuple[int, int], got: Outputs
) -> None:
    param, grad, m, v = (tensor.double() for tensor in before)
    old = {"param": before[0], "exp_avg": before[2], "exp_avg_sq": before[3]}
    lr, beta1, beta2, eps, decay, correction1, correction2 = hyper
    new_m, new_v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad.square()
    size_m = beta1 * m.abs() + (1 - beta1) * grad.abs()
    floats: dict[str, Any] = {"dtype": torch.float32, "operations": 4}
    assert_close(
        got["exp_avg"],
        new_m,
        **floats,
        scale=size_m,
        where="exp_avg",
        suspects=[
            _suspect_unchanged("exp_avg", old, new_m, shape, got),
            *kept_in_bf16(got["exp_avg"], new_m, cause=_BFLOAT16),
            (m + grad, "beta1 is not used"),
        ],
    )
    assert_close(
        got["exp_avg_sq"],
        new_v,
        **floats,
        where="exp_avg_sq",
        suspects=[
            _suspect_unchanged("exp_avg_sq", old, new_v, shape, got),
            *kept_in_bf16(got["exp_avg_sq"], new_v, cause=_BFLOAT16),
            *alike(
                got["exp_avg_sq"],
                beta2 * v + (1 - beta2) * grad,
                new_v,
                cause="the gradient is not squared",
            ),
        ],
    )

    def updated(m: torch.Tensor, v: torch.Tensor, c1: float, c2: float) -> torch.Tensor:
        return param * (1 - lr * decay) - lr * (m / c1) / ((v / c2).sqrt() + eps)

    denominator = (new_v / correction2).sqrt() + eps
    expected = updated(new_m, new_v, correction1, correction2)
    scale = param.abs() * (1 + lr * decay) + lr * size_m / correction1 / denominator
    coupled = param - lr * (new_m / correction1) / denominator
    assert_close(
        got["param"],
        expected,
        **mixed(before[0].dtype, expected, scale, _OPERATIONS),
        where="param",
        suspects=[
            (updated(new_m, new_v, 1.0, 1.0), "the moments' bias is not corrected"),
            (
                updated(m, v, correction1, correction2),
                "the old moments are used: the parameter needs those of this step",
            ),
            (coupled, "the weights do not decay"),
            (param * (1 - decay) + (coupled - param), "weight decay is not multiplied by lr"),
            _suspect_unchanged("param", old, expected, shape, got),
        ],
        cause=cause_of_rounding(got["param"], expected),
    )


_BFLOAT16 = "the moment is rounded to bfloat16: it must stay float from one step to the next"


def _suspect_unchanged(
    name: str,
    old: dict[str, torch.Tensor],
    expected: torch.Tensor,
    shape: tuple[int, int],
    got: Outputs,
) -> Suspect:
    """Every wrong element is as it was: whole elements are left out, or only `name` is."""
    tensor, cause = left_out(got[name], old[name], expected, shape)
    same = got[name] == old[name]
    if any(bool((got[other] != old[other])[same].any()) for other in old):
        return (
            tensor,
            f"{quoted(name)} is not stored: it keeps its old value where other results change",
        )
    return tensor, cause
