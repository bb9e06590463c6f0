"""Cases of `reduce_add`: every small length, four alignments, both types."""

from __future__ import annotations

from functools import partial

import torch

from grader.checks.compare import assert_close
from grader.checks.kernels_run import SHAPES, Case, Outputs, begins, mixed, normal, suffix
from grader.checks.kernels_suspects import Suspect, cause_of_rounding, cut_off, left_out, rounded_so

#: Elements by which dst and src lie off a multiple of 256 bytes.
SHIFTS = ((0, 0), (1, 1), (0, 1), (3, 2), (7, 7))
LENGTHS = (*range(35), 63, 64, 65, 127, 255, 257, 1000, 4099, 33333)
CHECKED = (0, 1, 2, 3, 5, 15, 16, 17, 31, 33, 257, 1000, 4099)


def cases(
    rng: torch.Generator, dtype: torch.dtype, lengths: tuple[int, ...] = LENGTHS
) -> list[Case]:
    """Launches over `lengths`, alignments and launch shapes in turn."""
    return [
        _case(rng, dtype, length, SHIFTS[i % 5], SHAPES[(i + i // 5) % 4])
        for i, length in enumerate(lengths)
    ] + [_case(rng, dtype, 1021, shift, shape) for shift in SHIFTS for shape in SHAPES]


def _case(
    rng: torch.Generator,
    dtype: torch.dtype,
    length: int,
    shift: tuple[int, int],
    shape: tuple[int, int],
) -> Case:
    dst, src = normal(rng, length, dtype=dtype), normal(rng, length, dtype=dtype)
    return Case(
        f"reduce_add_{suffix(dtype)}",
        [dst, src, length],
        partial(_judge, dst, src, shape),
        f"n = {length}, {begins(dst=shift[0], src=shift[1])}",
        shape,
        (*shift, 0),
    )


def _judge(dst: torch.Tensor, src: torch.Tensor, shape: tuple[int, int], got: Outputs) -> None:
    total = dst.double() + src.double()
    assert_close(
        got["dst"],
        total,
        **mixed(dst.dtype, total, total.abs(), 1),
        where="dst",
        suspects=[
            left_out(got["dst"], dst, total, shape),
            (src.double(), "src was copied, not added"),
            *_suspect_added_again(dst.double(), src.double(), got["dst"].double(), shape),
            *rounded_so(
                got["dst"],
                cut_off(total),
                total,
                cause="the lower half of the float sum is cut off: a bfloat16 is to be the nearest "
                "one, not the next one towards 0",
            ),
        ],
        cause=cause_of_rounding(got["dst"], total),
    )


def _suspect_added_again(
    dst: torch.Tensor, src: torch.Tensor, value: torch.Tensor, shape: tuple[int, int]
) -> list[Suspect]:
    """Every wrong element is dst and a multiple of src."""
    times = ((value - dst) / src).round()
    close = (dst + times * src - value).abs() <= 0.1 * src.abs()
    again = times >= 2
    if not bool((close & (times >= 1)).all()) or not bool(again.any()):
        return []
    grid, block = shape
    if bool((times == 2).all()):
        return [(value, "elements are added twice")]
    if grid > 1 and int(again.to(torch.uint8).argmax()) == block:
        return [
            (
                value,
                f"from element {block} on, where the second block begins, elements are added more "
                "than once: the blocks overlap, the stride of the loop must be that of the whole "
                "grid",
            )
        ]
    return [
        (
            value,
            "elements are added more than once: several threads, or blocks, take the same one",
        )
    ]
