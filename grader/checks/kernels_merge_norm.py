"""Cases of `attention_merge` and `layer_norm`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from grader.checks.compare import assert_close
from grader.checks.kernels_run import (
    NOT_A_NUMBER,
    SHAPES,
    Case,
    Outputs,
    begins,
    counted,
    mixed,
    normal,
    suffix,
)
from grader.checks.kernels_suspects import (
    bf16,
    cause_of_rounding,
    kept_in_bf16,
    quoted,
    rounded_so,
)

#: rows, dim, elements by which the three (rows, dim) tensors lie off 256 bytes.
MERGE_SIZES = (
    (0, 8, 0),
    (1, 1, 0),
    (3, 5, 1),
    (40, 4, 0),
    (33, 8, 4),
    (17, 33, 0),
    (50, 64, 0),
    (9, 128, 3),
    (65, 16, 8),
    (7, 1000, 0),
)
#: rows, hidden, elements off 256 bytes.
NORM_SIZES = (
    (0, 8, 0),
    (1, 1, 0),
    (2, 7, 0),
    (5, 31, 1),
    (33, 32, 0),
    (10, 33, 0),
    (9, 64, 8),
    (70, 8, 0),
    (4, 257, 3),
    (6, 1000, 0),
    (3, 1024, 0),
    (2, 2056, 0),
)
_EPS = 1e-5


def merge_cases(rng: torch.Generator, dtype: torch.dtype) -> list[Case]:
    """Launches of attention_merge; some rows attended to nothing on one side or on both."""
    return [_merge(rng, dtype, i, *size) for i, size in enumerate(MERGE_SIZES)]


def _merge(
    rng: torch.Generator, dtype: torch.dtype, i: int, rows: int, dim: int, shift: int
) -> Case:
    sides = []
    for side in range(2):
        out, lse = normal(rng, rows, dim, dtype=dtype), normal(rng, rows) * (3.0, 1e3)[i % 2]
        nothing = torch.arange(rows) % 7 == 3 + side
        nothing |= torch.arange(rows) % 11 == 5
        lse[nothing], out[nothing] = -torch.inf, 0
        sides += [out, lse]
    result = torch.full((rows, dim), torch.nan, dtype=dtype)
    return Case(
        f"attention_merge_{suffix(dtype)}",
        [result, torch.full((rows,), torch.nan), *sides, rows, dim],
        partial(_judge_merge, sides),
        f"{counted(rows, 'row')} of {dim}, {begins(out=shift, out_a=shift, out_b=shift)}",
        SHAPES[i % 4],
        (shift, 0, shift, 0, shift, 0, 0, 0),
        not_a_number=partial(_cause_of_nan, (sides[1] == -torch.inf) & (sides[3] == -torch.inf)),
    )


def _cause_of_nan(nothing: torch.Tensor, got: Outputs) -> str:
    rows = torch.isnan(got["lse"]) | torch.isnan(got["out"]).any(1)
    if bool(rows.any()) and not bool((rows & ~nothing).any()):
        return (
            "minus infinity minus minus infinity is not a number: a row that attended to nothing "
            "on either side must be treated apart"
        )
    return NOT_A_NUMBER


def _judge_merge(sides: list[torch.Tensor], got: Outputs) -> None:
    out_a, lse_a, out_b, lse_b = (side.double() for side in sides)
    lse = torch.logaddexp(lse_a, lse_b)
    nothing = lse == -torch.inf
    assert_close(
        got["lse"],
        lse,
        dtype=torch.float32,
        operations=6,
        scale=torch.where(nothing, 0.0, lse.abs() + 1),
        where="lse",
        suspects=[
            (torch.maximum(lse_a, lse_b), "that is the larger of the two"),
            *kept_in_bf16(got["lse"], lse, cause="lse is rounded to bfloat16: it must stay float"),
        ],
        cause="the exponentials overflow, or both become 0: subtract the larger of the two first"
        if bool((torch.isinf(got["lse"]) & ~nothing).any())
        else None,
    )
    a = torch.where(nothing, 0.0, (lse_a - lse).exp())[:, None]
    b = torch.where(nothing, 0.0, (lse_b - lse).exp())[:, None]
    expected = a * out_a + b * out_b
    # The weights inherit the rounding of lse, and the difference of two numbers of its size.
    size = torch.where(nothing, 0.0, 1 + lse.abs())[:, None]
    assert_close(
        got["out"],
        expected,
        **mixed(sides[0].dtype, expected, (a * out_a.abs() + b * out_b.abs()) * size, 12),
        where="out",
        suspects=[
            (out_a + out_b, "the sides are added without their weights"),
            ((out_a + out_b) / 2, "the sides are averaged without their weights"),
            (b * out_a + a * out_b, "the weights are swapped"),
            *rounded_so(
                got["out"],
                bf16(a * out_a) + bf16(b * out_b),
                expected,
                cause="each product is rounded to bfloat16 before the two are added: add in float "
                "and round once, at the end",
            ),
            *rounded_so(
                got["out"],
                bf16(a) * out_a + bf16(b) * out_b,
                expected,
                cause="the weights are rounded to bfloat16: only the result is to be rounded",
            ),
        ],
        cause=cause_of_rounding(got["out"], expected),
    )


def forward_cases(rng: torch.Generator, dtype: torch.dtype) -> list[Case]:
    """Launches of layer_norm's forward; some rows lie far from zero."""
    return [_forward(rng, dtype, i, *size) for i, size in enumerate(NORM_SIZES)]


def _input(
    rng: torch.Generator, dtype: torch.dtype, i: int, rows: int, hidden: int
) -> torch.Tensor:
    return (normal(rng, rows, hidden) + (0.0, 30.0, 1.0)[i % 3]).to(dtype)


def _forward(
    rng: torch.Generator, dtype: torch.dtype, i: int, rows: int, hidden: int, shift: int
) -> Case:
    x = _input(rng, dtype, i, rows, hidden)
    weight, bias = normal(rng, hidden, dtype=dtype), normal(rng, hidden, dtype=dtype)
    results = [torch.full((rows, hidden), torch.nan, dtype=dtype)]
    results += [torch.full((rows,), torch.nan) for _ in range(2)]
    return Case(
        f"layer_norm_forward_{suffix(dtype)}",
        [*results, x, weight, bias, rows, hidden, _EPS],
        partial(_judge_forward, x, weight, bias),
        f"{counted(rows, 'row')} of {hidden}, {begins(out=shift, input=shift)}",
        SHAPES[i % 4],
        (shift, 0, 0, shift, 0, 0, 0, 0, 0),
    )


def _judge_forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, got: Outputs) -> None:
    dtype, n = x.dtype, x.shape[1]
    x, weight, bias = x.double(), weight.double(), bias.double()
    size = x.abs().mean(1)
    mean = x.mean(1)
    variance = x.var(1, correction=0)
    rstd = (variance + _EPS).rsqrt()
    floats: dict[str, Any] = {"dtype": torch.float32, "operations": n + 6}
    assert_close(
        got["mean"],
        mean,
        **floats,
        scale=size,
        where="mean",
        suspects=[
            (x.sum(1), "the sum is not divided by hidden"),
            (
                x.reshape(n, -1).mean(0),
                "the input is read as (hidden, rows), but it is (rows, hidden): the elements of a "
                "row lie side by side",
            ),
            *kept_in_bf16(got["mean"], mean, cause=_BFLOAT16),
        ],
    )
    # The mean's rounding enters each deviation, hence the spread it is compared with.
    spread = ((x.abs() + size[:, None]).square() * rstd[:, None].square() * _U32 * n).mean(1)
    assert_close(
        got["rstd"],
        rstd,
        **floats,
        scale=rstd * (1 + spread + size * rstd),
        where="rstd",
        suspects=[
            ((x.var(1) + _EPS).rsqrt(), "the variance is divided by hidden - 1"),
            ((variance + _EPS).sqrt(), "that is the deviation, not its reciprocal"),
            (x.square().mean(1).add(_EPS).rsqrt(), "the mean is not subtracted"),
            *kept_in_bf16(got["rstd"], rstd, cause=_BFLOAT16),
        ],
        cause="E[x²] - E[x]² loses all digits where the mean is large: subtract the mean first",
    )
    h = (x - mean[:, None]) * rstd[:, None]
    expected = h * weight + bias
    scale = (x.abs() + size[:, None]) * rstd[:, None] * weight.abs() * (1 + spread[:, None])
    assert_close(
        got["out"],
        expected,
        **mixed(dtype, expected, scale + bias.abs(), n + 12),
        where="out",
        suspects=[(h, "weight and bias are not used"), (h * weight, "the bias is not added")],
        cause=cause_of_rounding(got["out"], expected),
    )


_U32 = torch.finfo(torch.float32).eps / 2
_BFLOAT16 = "the statistics are kept in bfloat16: sums and results must be float"


def backward_cases(rng: torch.Generator, dtype: torch.dtype) -> list[Case]:
    """Launches of layer_norm's backward; the weights' gradients already hold something."""
    return [_backward(rng, dtype, i, *size) for i, size in enumerate(NORM_SIZES)]


def _backward(
    rng: torch.Generator, dtype: torch.dtype, i: int, rows: int, hidden: int, shift: int
) -> Case:
    x, dy = _input(rng, dtype, i, rows, hidden), normal(rng, rows, hidden, dtype=dtype)
    weight = normal(rng, hidden, dtype=dtype)
    mean = x.double().mean(1).float()
    rstd = (x.double().var(1, correction=0) + _EPS).rsqrt().float()
    before = [normal(rng, hidden), normal(rng, hidden)]
    result = torch.full((rows, hidden), torch.nan, dtype=dtype)
    return Case(
        f"layer_norm_backward_{suffix(dtype)}",
        [result, *before, dy, x, weight, mean, rstd, rows, hidden],
        partial(_judge_backward, (dy, x, weight, mean, rstd), before),
        f"{counted(rows, 'row')} of {hidden}, "
        + begins(grad_input=shift, grad_out=shift, input=shift),
        SHAPES[i % 4],
        (shift, 0, 0, shift, shift, *[0] * 5),
        shared_bytes=8 * hidden,
    )


def _judge_backward(
    operands: tuple[torch.Tensor, ...], before: list[torch.Tensor], got: Outputs
) -> None:
    dtype = operands[0].dtype
    dy, x, weight, mean, rstd = (operand.double() for operand in operands)
    rows, n = x.shape
    h = (x - mean[:, None]) * rstd[:, None]
    # |h| as it is computed: the difference of x and the mean has a rounding of their size.
    size_h = (x.abs() + mean.abs()[:, None]) * rstd[:, None]
    d = dy * weight
    dot = (d * h).mean(1, keepdim=True)
    expected = rstd[:, None] * (d - d.mean(1, keepdim=True) - h * dot)
    size_dot = (d.abs() * size_h).mean(1, keepdim=True)
    scale = d.abs() + d.abs().mean(1, keepdim=True) + size_h * size_dot
    assert_close(
        got["grad_input"],
        expected,
        **mixed(dtype, expected, rstd[:, None] * scale, n + 14),
        where="grad_input",
        suspects=[
            (rstd[:, None] * d, "the mean and the variance depend on the input too"),
            (
                rstd[:, None] * (d - d.mean(1, keepdim=True)),
                "the variance's part is missing: the term with sum(d h)",
            ),
            (rstd[:, None] * (d - h * dot), "the mean's part is missing: the term with sum d"),
        ],
        cause=cause_of_rounding(got["grad_input"], expected),
    )
    floats: dict[str, Any] = {"dtype": torch.float32, "operations": rows + 6}
    for name, old, terms, sizes in (
        ("grad_weight", before[0], dy * h, dy.abs() * size_h),
        ("grad_bias", before[1], dy, dy.abs()),
    ):
        total = old.double() + terms.sum(0)
        assert_close(
            got[name],
            total,
            **floats,
            scale=old.double().abs() + sizes.sum(0),
            where=name,
            suspects=[
                (terms.sum(0), f"{quoted(name)} is overwritten, not added to"),
                (old.double() + terms.mean(0), "rows are averaged, not summed"),
            ],
            cause="rows are lost: additions of several threads to one place must be atomic",
        )
