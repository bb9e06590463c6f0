"""`torch.distributed` and `time` as a rank sees them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from grader.fabric.current import current_runtime, maybe_runtime
from grader.fabric.findings import Finding, at
from grader.fabric.location import user_location
from grader.fabric.process_group import SimProcessGroup
from grader.fabric.runtime import RankRuntime
from grader.fabric.store import SimStore


class Interception:
    """`torch.distributed` and `time` as a rank sees them; other threads see the originals."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def _patch(self, name: str, make: Callable[[Any], Any], *owners: Any) -> None:
        original = getattr(owners[0], name)
        replacement = make(original)
        for owner in owners:
            before = getattr(owner, name)
            setattr(owner, name, replacement)
            self._stack.callback(setattr, owner, name, before)

    def __enter__(self) -> None:
        self._patch("batch_isend_irecv", _batched, dist, c10d)
        self._patch("init_process_group", _initializer, dist, c10d)
        self._patch("new_group", _grouper, dist, c10d)
        self._patch("_get_default_group", _default_group, c10d)
        self._patch("sleep", _sleeping, time)

    def __exit__(self, *exc: object) -> None:
        self._stack.close()


def _batched(original: Callable[..., Any]) -> Callable[..., Any]:
    def batch_isend_irecv(p2p_op_list: list[dist.P2POp]) -> list[dist.Work]:
        runtime = maybe_runtime()
        if runtime is None or runtime.batch >= 0:
            return original(p2p_op_list)  # type: ignore[no-any-return]
        runtime.begin_batch()
        try:
            return original(p2p_op_list)  # type: ignore[no-any-return]
        finally:
            runtime.end_batch()

    batch_isend_irecv.__doc__ = original.__doc__
    return batch_isend_irecv


def _default_group(original: Callable[[], Any]) -> Callable[[], Any]:
    def _get_default_group() -> Any:
        try:
            return original()
        except ValueError:
            current_runtime()  # in a side thread this says what is really wrong
            raise

    return _get_default_group


def _sleeping(original: Callable[[float], None]) -> Callable[[float], None]:
    def sleep(seconds: float) -> None:
        runtime = maybe_runtime()
        if runtime is None:
            original(seconds)
        else:
            runtime.scheduler.wait_until(runtime.thread, None, time.monotonic() + seconds)

    return sleep


def _initializer(original: Callable[..., None]) -> Callable[..., None]:
    """`init_process_group` for ranks: whatever backend is asked for, it is this cluster."""

    def init_process_group(
        backend: str | None = None,
        init_method: str | None = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        runtime = maybe_runtime()
        if runtime is None:
            original(backend, init_method, timeout, world_size, rank, store, *args, **kwargs)
            return
        size = runtime.engine.world_size
        for name, given, actual in (
            ("world_size", world_size, size),
            ("rank", rank, runtime.rank),
        ):
            if given not in (-1, actual):
                raise ValueError(f"{name}={given}, but this simulated rank has {actual}")
        original("sim", store=shared_store(runtime), world_size=size, rank=runtime.rank)

    init_process_group.__doc__ = original.__doc__
    return init_process_group


def _grouper(original: Callable[..., Any]) -> Callable[..., Any]:
    """`new_group` for ranks: whatever backend is asked for, it is this cluster."""

    def new_group(*args: Any, **kwargs: Any) -> Any:
        if maybe_runtime() is not None:
            args = (*args[:2], *(None for _ in args[2:4]), *args[4:])
            kwargs = {k: v for k, v in kwargs.items() if k not in ("backend", "pg_options")}
        return original(*args, **kwargs)

    new_group.__doc__ = original.__doc__
    return new_group


def _store_use(runtime: RankRuntime, name: str) -> None:
    allow = runtime.engine.allow
    if runtime.region and allow is not None and "store" not in allow:
        here = user_location()
        runtime.fail(
            Finding(
                "forbidden_call",
                f"rank {runtime.rank} used the store ({name}){at(here)}, which this task forbids: "
                f"data travels in messages.",
                (runtime.rank,),
                {runtime.rank: here} if here is not None else {},
                details={"call": f"store.{name}"},
            )
        )


def shared_store(runtime: RankRuntime) -> SimStore:
    """The store that the ranks of the run share, as this rank sees it."""
    if runtime.store is None:
        # Kept: C++ holds only its own half of a Python store, and fails once the other is gone.
        runtime.store = SimStore(runtime, runtime.engine.store, _store_use)
    return runtime.store


def _create_group(options: Any, _: Any) -> SimProcessGroup:
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    return SimProcessGroup(current_runtime(), options.group_id, ranks)


def register_backend() -> None:
    """Make "sim" known to `torch.distributed`; done on import of the fabric."""
    if "SIM" not in dist.Backend._plugins:
        dist.Backend.register_backend(
            "sim", _create_group, extended_api=True, devices=["cpu", "cuda"]
        )
