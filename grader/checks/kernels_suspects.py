"""Wrong results of kernels that explain themselves: suspects for `assert_close`."""

from __future__ import annotations

import torch

Suspect = tuple[torch.Tensor, str]

NOTHING_CHANGED = "every element is left out: what does not fill 16 bytes is, or everything"
TARGET_LOGIT_0 = (
    "target_logit is 0 although the target is on this shard: it is never set, or target, an index "
    "into the whole vocabulary, is taken for a column of the shard"
)
NO_TARGET_COLUMN = (
    "1 is not subtracted at the target's column: it is forgotten, or target, an index into the "
    "whole vocabulary, is taken for a column of the shard"
)
#: Causes that leave several faults open: another case may tell more.
VAGUE = (NOTHING_CHANGED, TARGET_LOGIT_0, NO_TARGET_COLUMN)


def left_out(
    got: torch.Tensor, before: torch.Tensor, expected: torch.Tensor, shape: tuple[int, int]
) -> Suspect:
    """Every wrong element is as it was before the launch.

    expected: float64. shape: (grid, block) of the launch.
    """
    same = got == before
    left = (same & (before.double() != expected)).flatten()
    return torch.where(same, before.double(), expected), _cause_left_out(left, *shape)


def _cause_left_out(left: torch.Tensor, grid: int, block: int) -> str:
    n, count = len(left), int(left.sum())
    if count == n:
        return NOTHING_CHANGED if n <= 64 else "the kernel changes nothing"
    first = int(left.to(torch.uint8).argmax())
    if bool(left[first:].all()):
        if first in (grid * block, 4 * grid * block, 8 * grid * block):
            return (
                f"elements from {first} on are left out: every thread of <<<{grid}, {block}>>> "
                "does one share, and the loop over the rest is missing"
            )
        if count < 8:
            return (
                f"the tail is left out ({count} of {n} elements): it does not fill 16 bytes and "
                "needs single elements, or the loop ends too early"
            )
        return f"elements from {first} on are left out: the loop ends too early"
    if bool(left[:count].all()):
        return (
            f"the head is left out ({count} of {n} elements): what lies before the first multiple "
            "of 16 bytes needs single elements"
        )
    return (
        f"{count} of {n} elements are left out, the first is element {first}: the loop's stride "
        "skips them"
    )


def alike(
    got: torch.Tensor, suspect: torch.Tensor, expected: torch.Tensor, *, cause: str
) -> list[Suspect]:
    """`got` is `suspect` up to a percent, and `expected` is not.

    For wrong answers whose rounding errors have nothing to do with those of the right one.
    """
    value = got.double()
    atol = 1e-3 * largest(suspect)
    fits = torch.allclose(value, suspect, rtol=1e-2, atol=atol)
    right = torch.allclose(expected, suspect, rtol=1e-2, atol=atol)
    return [(value, cause)] if fits and not right else []


def kept_in_bf16(got: torch.Tensor, expected: torch.Tensor, *, cause: str) -> list[Suspect]:
    """A float result that is nearly right, and a bfloat16 number in every element."""
    value = got.double()
    near = torch.allclose(value, expected, rtol=2**-4, atol=0.0)
    return [(value, cause)] if near and torch.equal(bf16(value), value) else []


def rounded_so(
    got: torch.Tensor, suspect: torch.Tensor, expected: torch.Tensor, *, cause: str
) -> list[Suspect]:
    """A bfloat16 result that is `suspect`, rounded, nearly wherever it is not `expected`."""
    value = got.double()
    wrong = value != bf16(expected)
    explained = (value == bf16(suspect))[wrong]
    if got.dtype != torch.bfloat16 or not len(explained):
        return []
    return [(value, cause)] if float(explained.double().mean()) >= 0.9 else []


def quoted(name: str) -> str:
    """The name as code, which no language translates: "counts" is a word too."""
    return f"`{name}`"


def largest(x: torch.Tensor) -> float:
    """The largest magnitude among its finite numbers, 0 without any."""
    finite = x[torch.isfinite(x)]
    return float(finite.abs().max()) if len(finite) else 0.0


def bf16(x: torch.Tensor) -> torch.Tensor:
    """x (float64) rounded to bfloat16, as float64."""
    return x.bfloat16().double()


def cut_off(x: torch.Tensor) -> torch.Tensor:
    """x (float64) with the lower half of its float cut off, as float64."""
    return (x.float().view(torch.int32) & -0x10000).view(torch.float32).double()


def cause_of_rounding(got: torch.Tensor, expected: torch.Tensor) -> str | None:
    """The likely cause when a bfloat16 result is off by a few of its roundings only."""
    if got.dtype != torch.bfloat16 or not torch.allclose(
        got.double(), expected, rtol=2**-5, atol=2**-5 * largest(expected)
    ):
        return None
    return (
        "the errors are as small as a few roundings to bfloat16: compute in float, and round the "
        "result once, to nearest"
    )
