"""Timed drivers around one dispatch of tokens to their experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from grader.checks.real_entry import Buffers, RealContext, deliver


def dispatched(context: RealContext, given: Any, buffers: Buffers) -> Callable[[], None]:
    """The student's dispatch of "tokens" by "indices" to "rows" and "counts"."""
    function = context.function("a8.dispatch")

    def step() -> None:
        sent = context.call(function, buffers["tokens"], buffers["indices"], given["experts"])
        deliver(buffers["rows"], sent.tokens, "Dispatched.tokens")
        deliver(buffers["counts"], sent.expert_counts, "Dispatched.expert_counts")

    return step


def library(context: RealContext, given: Any, buffers: Buffers) -> Callable[[], None]:
    """One all-to-all of "pairs", by split sizes and to a new tensor as in dispatch, to "moved"."""
    size = dist.get_world_size()
    splits = [len(buffers["pairs"]) // size] * size

    def step() -> None:
        moved = torch.empty_like(buffers["pairs"])
        dist.all_to_all_single(moved, buffers["pairs"], splits, splits)
        deliver(buffers["moved"], moved, "the baseline's result")
        buffers["by"].fill_(given["by"])

    return step
