"""Which rank a thread is."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from grader.fabric.runtime import NOT_A_RANK, RankRuntime

_runtimes: dict[int, RankRuntime] = {}  # by thread ident


def maybe_runtime() -> RankRuntime | None:
    """The calling rank, or `None` in a thread that is none."""
    return _runtimes.get(threading.get_ident())


def current_runtime() -> RankRuntime:
    """The calling rank. RuntimeError in a thread that is none (a side thread, say)."""
    runtime = maybe_runtime()
    if runtime is None:
        raise RuntimeError(NOT_A_RANK)
    return runtime


@contextlib.contextmanager
def region(counted: bool) -> Iterator[None]:
    """Whether what the calling rank does inside belongs to the program under test."""
    runtime = current_runtime()
    before, runtime.region = runtime.region, counted
    try:
        yield
    finally:
        runtime.region = before


@contextlib.contextmanager
def being(runtime: RankRuntime) -> Iterator[None]:
    """The calling thread is this rank while it is inside."""
    _runtimes[threading.get_ident()] = runtime
    try:
        yield
    finally:
        del _runtimes[threading.get_ident()]
