"""`torch.distributed` and `time` as a rank sees them."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.device_mesh
import torch.multiprocessing
from torch.distributed import distributed_c10d as c10d

from grader.fabric.counting import meta_attention
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

    def _patch(self, name: str, make: Callable[[Any], Any], owner: Any) -> None:
        original = getattr(owner, name)
        replacement = make(original)
        for holder in _holders(name, original, owner):
            setattr(holder, name, replacement)
            self._stack.callback(setattr, holder, name, original)

    def __enter__(self) -> None:
        self._patch("batch_isend_irecv", _batched, c10d)
        self._patch("init_process_group", _initializer, c10d)
        self._patch("new_group", _grouper, c10d)
        self._patch("_get_default_group", _default_group, c10d)
        self._patch("sleep", _sleeping, time)
        self._patch("scaled_dot_product_attention", _attention, torch.nn.functional)
        for store in ("TCPStore", "FileStore", "HashStore"):
            self._patch(store, _store_maker, dist)
        for name in ("spawn", "start_processes"):
            self._patch(name, _no_processes, torch.multiprocessing)

    def __exit__(self, *exc: object) -> None:
        self._stack.close()


_holding: dict[str, list[Any]] = {}


def _holders(name: str, original: Any, owner: Any) -> list[Any]:
    """The owner, and every module of `torch.distributed` that imported the same object by name."""
    found = _holding.get(name)
    if found is None:
        modules = [
            module
            for key, module in list(sys.modules.items())
            if key.startswith("torch.distributed") and vars(module).get(name) is original
        ]
        found = _holding[name] = [owner, *(m for m in modules if m is not owner)]
    return found


def _store_maker(original: Any) -> Any:
    """A rank that makes a store of its own gets the one that all simulated ranks share."""

    def make_store(*args: Any, **kwargs: Any) -> Any:
        runtime = maybe_runtime()
        return original(*args, **kwargs) if runtime is None else shared_store(runtime)

    return make_store


def _no_processes(original: Callable[..., Any]) -> Callable[..., Any]:
    def start(*args: Any, **kwargs: Any) -> Any:
        if maybe_runtime() is not None:
            raise RuntimeError(
                "a simulated rank cannot spawn processes: the ranks are there already. Run the "
                "function that the script spawns, as under torchrun (RANK and WORLD_SIZE are set)"
            )
        return original(*args, **kwargs)

    return start


def _attention(original: Callable[..., Any]) -> Callable[..., Any]:
    """Attention on meta tensors counts as the fused kernel it would be, not as torch's pieces."""

    def scaled_dot_product_attention(
        query: Any, key: Any, value: Any, *args: Any, **kwargs: Any
    ) -> Any:
        runtime = maybe_runtime()
        if runtime is None or not getattr(query, "is_meta", False):
            return original(query, key, value, *args, **kwargs)
        return meta_attention(runtime.note_compute, query, key, value, *args, **kwargs)

    scaled_dot_product_attention.__doc__ = original.__doc__
    return scaled_dot_product_attention


def _batched(original: Callable[..., Any]) -> Callable[..., Any]:
    def batch_isend_irecv(p2p_op_list: list[dist.P2POp]) -> list[dist.Work]:
        runtime = maybe_runtime()
        if runtime is None or runtime.batch >= 0:
            return original(p2p_op_list)  # type: ignore[no-any-return]
        post = _post_plain if _is_plain(p2p_op_list) else original
        runtime.begin_batch()
        try:
            return post(p2p_op_list)
        finally:
            runtime.end_batch()

    batch_isend_irecv.__doc__ = original.__doc__
    return batch_isend_irecv


def _is_plain(ops: Any) -> bool:
    """Whether torch would do nothing but hand each of these to the one group they name."""
    if type(ops) is not list or not ops:
        return False
    group = getattr(ops[0], "group", None)
    return type(group) is SimProcessGroup and all(
        type(op) is dist.P2POp
        and op.group is group
        and type(op.tensor) is torch.Tensor
        and not op.tensor.is_complex()
        and (op.op is dist.isend or op.op is dist.irecv)
        for op in ops
    )


def _post_plain(ops: list[dist.P2POp]) -> list[dist.Work]:
    return [
        op.group.send([op.tensor], op.group_peer, op.tag)
        if op.op is dist.isend
        else op.group.recv([op.tensor], op.group_peer, op.tag)
        for op in ops
    ]


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


def check_store_use(runtime: RankRuntime, name: str) -> None:
    """End the run when the task forbids the program under test to use the store."""
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
        runtime.store = SimStore(runtime, runtime.engine.store, check_store_use)
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
