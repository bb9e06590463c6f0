"""Timed drivers around a product with a collective: the student's, and the two in turn.

Buffers: the factors "a" and "b" of this rank, and "result".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from grader.checks.real_entry import Buffers, RealContext, deliver


def overlapped(context: RealContext, given: Any, buffers: Buffers) -> Callable[[], None]:
    """The student's function. given: task."""
    function = context.function(given["task"])

    def step() -> None:
        result = context.call(function, buffers["a"], buffers["b"])
        deliver(buffers["result"], result, "the product")

    return step


def one_after_the_other(context: RealContext, given: Any, buffers: Buffers) -> Callable[[], None]:
    """One product and one collective of the library."""
    a, b, result = (buffers[name] for name in ("a", "b", "result"))
    if given["task"] == "a5.matmul_reduce_scatter":

        def step() -> None:
            dist.reduce_scatter_tensor(result, torch.mm(a, b))

        return step
    whole = a.new_empty((a.shape[0] * context.world_size, a.shape[1]))

    def gather() -> None:
        dist.all_gather_into_tensor(whole, a)
        torch.mm(whole, b, out=result)

    return gather
