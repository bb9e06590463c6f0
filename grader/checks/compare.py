"""Comparison of what a solution returned with what was expected, with bounds that are derived.

Expected values are computed in float64 on the examiner's side. A result computed in a dtype with
unit roundoff u, in which each element went through at most n roundings, satisfies

    |got - exact| <= ((1 - u)**-n - 1) * S,      S = sum of the magnitudes that were added up

(Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., lemma 3.1: a product of n factors
(1 + d)**+-1 with |d| <= u is within that distance of 1, whatever the order of summation. For
n*u < 1 it is at most gamma_n = n*u / (1 - n*u).) To it come n times the smallest subnormal number,
for results that underflow. Integers and booleans must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from grader.checks.framework import CheckFailed

_SHOWN = 6  # elements of a slice that a message shows


def error_factor(dtype: torch.dtype, operations: int) -> float:
    """(1 - u)**-n - 1 for n = `operations` roundings in `dtype`; 0 for integers and booleans.

    float64 gets twice the operations: there the expected value is rounded as often as the result.
    """
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    unit_roundoff = torch.finfo(dtype).eps / 2
    if dtype in (torch.float64, torch.complex128):
        operations *= 2
    return math.expm1(-operations * math.log1p(-unit_roundoff))


def assert_close(
    got: object,
    expected: torch.Tensor,
    *,
    dtype: torch.dtype,
    operations: int,
    scale: torch.Tensor | None = None,
    where: str = "",
    cause: str | None = None,
    suspects: Sequence[tuple[torch.Tensor, str]] = (),
) -> None:
    """Raise `CheckFailed` unless `got` is `expected` up to the rounding errors of `dtype`.

    got: what came back; anything that is no tensor of the right shape and dtype fails.
    expected: float64 (or complex128), or an integer or boolean tensor for such dtypes.
    operations: roundings that any element went through, input conversions included.
    scale: per element, the sum of the magnitudes that were added (float64); default |expected|.
    where: "rank 2", put before the message.
    cause: likely cause, used when no suspect fits.
    suspects: wrong answers that people give, each with the cause it points to; the first one
        that `got` equals (within the same bound) names the cause.
    """
    tensor = _same_form(got, tuple(expected.shape), dtype, where)
    if not (dtype.is_floating_point or dtype.is_complex):
        wanted = expected.round() if expected.is_floating_point() else expected
        wrong = tensor != wanted.to(dtype)
        bound = None
    else:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        wanted = expected.to(wide)
        bound = _bound(wanted, dtype, operations, scale)
        wrong = _differs(tensor.to(wide), wanted, bound, dtype)
    if not bool(wrong.any()):
        return
    message = _describe(tensor, wanted, wrong, bound, where)
    raise CheckFailed(message, cause=_cause(tensor, wanted, wrong, bound, suspects) or cause)


def assert_same_bits(
    tensors: Sequence[torch.Tensor], *, ranks: Sequence[int] | None = None, cause: str | None = None
) -> None:
    """Raise `CheckFailed` unless all tensors hold the same bits (so NaN equals the same NaN).

    tensors: one per rank, on the CPU. ranks: their numbers, default 0, 1, 2, …
    """
    ranks = range(len(tensors)) if ranks is None else ranks
    for rank, tensor in zip(ranks[1:], tensors[1:], strict=True):
        first = tensors[0]
        _same_form(tensor, tuple(first.shape), first.dtype, f"rank {rank}")
        wrong = _bits_differ(first, tensor)
        if bool(wrong.any()):
            begin, end, text = _first_run(wrong)
            raise CheckFailed(
                f"ranks {ranks[0]} and {rank} differ bit for bit, {text}: "
                f"rank {ranks[0]} has {_show(first, begin, end)}, "
                f"rank {rank} has {_show(tensor, begin, end)}; {_count(wrong)}",
                cause=cause or "the ranks add the same numbers in different orders",
            )


def _same_form(got: object, shape: tuple[int, ...], dtype: torch.dtype, where: str) -> torch.Tensor:
    if not isinstance(got, torch.Tensor):
        raise CheckFailed(_at(where, f"expected a tensor, got {_type_of(got)}"))
    if tuple(got.shape) != shape:
        raise CheckFailed(_at(where, f"expected shape {shape}, got {tuple(got.shape)}"))
    if got.dtype != dtype:
        raise CheckFailed(_at(where, f"expected dtype {dtype}, got {got.dtype}"))
    return got.detach().cpu().resolve_conj()


def _bound(
    wanted: torch.Tensor, dtype: torch.dtype, operations: int, scale: torch.Tensor | None
) -> torch.Tensor:
    magnitude = wanted.abs() if scale is None else scale.to(torch.float64).abs()
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    bound = magnitude.expand(wanted.shape) * error_factor(dtype, operations)
    return bound + operations * smallest


def _differs(
    got: torch.Tensor, wanted: torch.Tensor, bound: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Where `got` lies outside the bound. What overflows the dtype may come out infinite."""
    finite = torch.isfinite(wanted)
    close = finite & ((got - wanted).abs() <= bound)
    same = (got == wanted) | (torch.isnan(got) & torch.isnan(wanted))
    if dtype.is_complex:
        return ~(close | same)
    overflowed = finite & (wanted.abs() + bound > torch.finfo(dtype).max)
    return ~(close | same | (overflowed & torch.isinf(got) & (got.sign() == wanted.sign())))


def _cause(
    got: torch.Tensor,
    wanted: torch.Tensor,
    wrong: torch.Tensor,
    bound: torch.Tensor | None,
    suspects: Sequence[tuple[torch.Tensor, str]],
) -> str | None:
    if bool((torch.isnan(got) & ~torch.isnan(wanted)).any()):
        return "the buffer was read before its receive was waited for: until then it holds NaN"
    for suspect, cause in suspects:
        if suspect.shape != got.shape:
            continue
        if bound is None:
            fits = got == suspect.to(got.dtype)
        else:
            fits = (got.to(wanted.dtype) - suspect.to(wanted.dtype)).abs() <= bound
        if bool(fits.all()):
            return cause
    return None


def _describe(
    got: torch.Tensor,
    wanted: torch.Tensor,
    wrong: torch.Tensor,
    bound: torch.Tensor | None,
    where: str,
) -> str:
    begin, end, text = _first_run(wrong)
    message = (
        f"{text}: expected {_show(wanted, begin, end)}, got {_show(got, begin, end)}; "
        f"{_count(wrong)}"
    )
    if bound is not None:
        error = torch.where(wrong, (got.to(wanted.dtype) - wanted).abs(), 0).flatten()
        error = torch.nan_to_num(error, nan=math.inf, posinf=math.inf)
        worst = int(error.argmax())
        if math.isfinite(float(error[worst])):
            at = _index(worst, tuple(wrong.shape))
            allowed = float(bound.flatten()[worst])
            message += f"; largest error {float(error[worst]):.3g}{at}, allowed {allowed:.3g}"
    return _at(where, message)


def _first_run(wrong: torch.Tensor) -> tuple[int, int, str]:
    """The first stretch of wrong elements within one row: flat begin and end, and its name."""
    flat = wrong.flatten()
    begin = int(flat.to(torch.uint8).argmax())
    if wrong.dim() == 0:
        return begin, begin + 1, "value"
    width = wrong.shape[-1]
    row_end = (begin // width + 1) * width
    right = (~flat[begin:row_end]).to(torch.uint8)
    end = begin + int(right.argmax()) if bool(right.any()) else row_end
    column = begin % width
    span = f"{column}:{column + end - begin}" if end - begin > 1 else f"{column}"
    outer = [str(i) for i in _unravel(begin // width, tuple(wrong.shape[:-1]))]
    name = "elements" if end - begin > 1 else "element"
    return begin, end, f"{name} [{', '.join([*outer, span])}]"


def _unravel(index: int, shape: tuple[int, ...]) -> list[int]:
    places: list[int] = []
    for size in reversed(shape):
        places.insert(0, index % size)
        index //= size
    return places


def _index(flat: int, shape: tuple[int, ...]) -> str:
    return f" at [{', '.join(map(str, _unravel(flat, shape)))}]" if shape else ""


def _show(tensor: torch.Tensor, begin: int, end: int) -> str:
    values = tensor.detach().cpu().flatten()[begin : min(end, begin + _SHOWN)].tolist()
    text = ", ".join(f"{v:.7g}" if isinstance(v, float) else str(v) for v in values)
    if end - begin == 1:
        return text
    return f"[{text}{', …' if end - begin > _SHOWN else ''}]"


def _count(wrong: torch.Tensor) -> str:
    count = int(wrong.sum())
    return f"{count} of {wrong.numel()} elements {'differs' if count == 1 else 'differ'}"


def _bits_differ(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Per element: is any bit different?"""
    a, b = (each.detach().cpu().resolve_conj().contiguous() for each in (a, b))
    if a.is_complex():
        return _bits_differ(torch.view_as_real(a), torch.view_as_real(b)).any(-1)
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return a.view(integer) != b.view(integer)


def _type_of(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _at(where: str, message: str) -> str:
    if not where:
        return message
    separator = ", " if message.startswith(("element", "value")) else ": "
    return f"{where}{separator}{message}"
