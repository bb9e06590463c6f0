"""Cases of `reduce_add`: every small length, four alignments, both types."""

from __future__ import annotations

from functools import partial

import torch

from grader.checks.compare import assert_close
from grader.checks.kernels_run import SHAPES, Case, Outputs, left_out, mixed, normal, suffix

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
        partial(_judge, dst, src),
        f"n = {length}, dst and src {shift[0]} and {shift[1]} elements off 256 bytes",
        shape,
        (*shift, 0),
    )


def _judge(dst: torch.Tensor, src: torch.Tensor, got: Outputs) -> None:
    total = dst.double() + src.double()
    twice = (total + src.double(), "elements are added twice")
    if "dst" in got and got["dst"].shape == dst.shape:
        value = got["dst"].double()
        times = ((value - dst.double()) / src.double()).round()
        close = (dst.double() + times * src.double() - value).abs() <= 0.1 * src.double().abs()
        if bool((close & (times >= 1)).all()):
            twice = (
                value,
                "elements are added more than once: several threads, or blocks, take the same one",
            )
    assert_close(
        got["dst"],
        total,
        **mixed(dst.dtype, total, total.abs(), 1),
        where="dst",
        suspects=[
            left_out(got.get("dst"), dst, total),
            (src.double(), "src was copied, not added"),
            twice,
        ],
    )
