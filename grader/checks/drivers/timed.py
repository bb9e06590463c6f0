"""Timed drivers around one collective: the student's, and the library's as its baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from grader.checks.real_entry import Buffers, RealContext


def all_reduce(context: RealContext, given: Any, buffers: Buffers) -> Callable[[], None]:
    """Sum the buffer "tensor" in place with the student's function of the task `given`."""
    function = context.function(given)
    tensor = buffers["tensor"]

    def step() -> None:
        answer = context.call(function, tensor, dist.ReduceOp.SUM)
        if answer is not None:
            raise TypeError(
                f"{given} returned a {type(answer).__qualname__}; it works in place, and what it "
                f"returns is not looked at"
            )

    return step


def library_all_reduce(context: RealContext, given: Any, buffers: Buffers) -> Callable[[], None]:
    """Sum the buffer "tensor" in place with torch's own all-reduce."""
    tensor: torch.Tensor = buffers["tensor"]
    return lambda: dist.all_reduce(tensor)
