"""Problems for throughput checks: fresh inputs, and what the results must be.

Inputs are whole numbers, so small that every order of summation gives the same bits: a result is
right or wrong, and to tell costs no more than reading it.
"""

from __future__ import annotations

import numpy as np
import torch

from grader.checks.throughput import Problem, Timed
from grader.harness.throughput import Inputs

_LARGEST_WORLD = 256  # of 16-bit numbers, whose sum a float32 holds exactly


def whole_numbers(
    rng: np.random.Generator, numel: int, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """`numel` random 16-bit whole numbers as `dtype`."""
    raw = rng.integers(0, 1 << 64, size=-(-numel // 4), dtype=np.uint64)
    return torch.from_numpy(raw.view(np.int16)[:numel]).to(dtype)


def first_difference(tensor: torch.Tensor, expected: torch.Tensor) -> str | None:
    """None when equal bit for bit, else the first element that is not."""
    if torch.equal(tensor, expected):
        return None
    wrong = (tensor != expected).flatten().nonzero()
    place = int(wrong[0])
    came, wanted = tensor.flatten()[place].item(), expected.flatten()[place].item()
    return (
        f"{len(wrong)} of {tensor.numel()} elements are wrong; element {place} is {came:g}, "
        f"expected {wanted:g}"
    )


def all_reduce(ranks: int, nbytes: int, given: object = None) -> Timed:
    """Sum of float32 vectors of `nbytes`, in place in the buffer "tensor" of every rank.

    Together the ranks cannot send less than 2 (ranks − 1) vectors.
    """
    if not 1 <= ranks <= _LARGEST_WORLD:
        raise ValueError(f"ranks must be 1 … {_LARGEST_WORLD}, got {ranks}")
    numel = nbytes // torch.float32.itemsize

    def make(rng: np.random.Generator) -> Inputs:
        return [{"tensor": whole_numbers(rng, numel)} for _ in range(ranks)]

    def expect(inputs: Inputs) -> torch.Tensor:
        total = inputs[0]["tensor"].clone()
        for each in inputs[1:]:
            total += each["tensor"]
        return total

    def differs(expected: torch.Tensor, tensors: Inputs) -> str | None:
        for rank, buffers in enumerate(tensors):
            difference = first_difference(buffers["tensor"], expected)
            if difference is not None:
                return f"rank {rank}: {difference}"
        return None

    def count(expected: torch.Tensor, tensors: Inputs) -> int:
        return sum(int((buffers["tensor"] != expected).sum()) for buffers in tensors)

    problem = Problem(
        layout={"tensor": ((numel,), torch.float32)},
        make=make,
        expect=expect,
        differs=differs,
        count=count,
        least_nbytes=2 * (ranks - 1) * numel * torch.float32.itemsize,
    )
    return Timed(problem, [given] * ranks)
