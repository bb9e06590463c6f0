# mypy: disable-error-code="override,no-untyped-call"
"""Process groups of real worlds that do more than torch's own: refuse calls, stage CUDA tensors.

A `WrappedGroup` stands before a gloo group. While the code under test runs in a task that allows
point-to-point calls only, every collective is refused with the name of the call and the line that
made it. Where several ranks share a GPU, which NCCL refuses, tensors travel through the host.
"""

from __future__ import annotations

import contextlib
import os
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import GroupName

BACKEND: Final = "worlds"
"""Name under which the wrapped gloo group is known to `torch.distributed`."""

_READS: Final = ("send",)
_POINT_TO_POINT: Final = ("send", "recv", "recv_anysource")
_COLLECTIVES: Final = (
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "barrier", "monitored_barrier",
    "allgather", "allgather_coalesced", "all_gather_single", "_allgather_base",
    "all_gather_single_coalesced", "allgather_into_tensor_coalesced",
    "gather", "scatter", "reduce_scatter", "reduce_scatter_single", "_reduce_scatter_base",
    "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced",
    "alltoall", "all_to_all_single", "alltoall_base",
)  # fmt: skip
_PUBLIC_NAMES: Final = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "all_gather_single": "all_gather_into_tensor",
    "_allgather_base": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
}
_NOT_THE_CALLERS: Final = (
    os.path.dirname(__file__),
    sysconfig.get_paths()["stdlib"],
    sysconfig.get_paths()["purelib"],
    "<",
)
_ALL_NAMES: Final = (
    "all_reduce", "broadcast", "reduce", "barrier", "monitored_barrier", "all_gather",
    "all_gather_into_tensor", "all_gather_object", "all_gather_coalesced", "gather",
    "gather_object", "scatter", "scatter_object_list", "broadcast_object_list", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "all_reduce_coalesced",
)  # fmt: skip


class ForbiddenCall(RuntimeError):
    """The code under test made a call that its task forbids."""


class Rules:
    """What the code under test may call, on this rank. allow: "p2p", or None for everything."""

    def __init__(self, allow: str | None = None) -> None:
        self._allow = allow
        self._depth = 0
        self._refused: str | None = None

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The rules apply while the block runs; a refusal that was swallowed is raised at its end.

        Raises `ForbiddenCall`.
        """
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if self._refused is not None:
            raise ForbiddenCall(self._refused)

    def check(self, call: str) -> None:
        """Raise `ForbiddenCall` if `call` is forbidden now."""
        if self._allow is None or self._depth == 0:
            return
        where = _line_of_caller()
        self._refused = (
            f"called {call}{where}, which this task forbids: it is to be built from "
            f"point-to-point calls (send, recv, isend, irecv, batch_isend_irecv)"
        )
        raise ForbiddenCall(self._refused)

    def watch_functions(self) -> None:
        """Refuse by function too, where the group itself cannot be wrapped (NCCL)."""
        from torch.distributed import distributed_c10d

        for name in _ALL_NAMES:
            function = getattr(distributed_c10d, name, None)
            if function is not None:
                watched = self._watched(name, function)
                setattr(distributed_c10d, name, watched)
                setattr(dist, name, watched)

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            self.check(name)
            return function(*arguments, **options)

        return watched


def _line_of_caller() -> str:
    """ " (file:line)" of the innermost frame that is neither torch's nor ours."""
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(_NOT_THE_CALLERS):
            return f" ({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno})"
    return ""


class _StagedWork(dist.Work):
    """A handle on an operation over host copies; at its end results go back to their tensors."""

    def __init__(self, inner: Any, results: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        super().__init__()
        self._inner = inner
        self._results = results

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait, and copy what came."""
        done: bool = self._inner.wait() if timeout is None else self._inner.wait(timeout)
        self._copy()
        return done

    def is_completed(self) -> bool:
        """Whether it is over; then results are in place."""
        over: bool = self._inner.is_completed()
        if over:
            self._copy()
        return over

    def is_success(self) -> bool:
        """Whether it went well."""
        success: bool = self._inner.is_success()
        return success

    def _source_rank(self) -> int:
        source: int = self._inner._source_rank()
        return source

    def _copy(self) -> None:
        for tensor, host in self._results:
            tensor.copy_(host)
        self._results = []


class WrappedGroup(dist.ProcessGroup):
    """A gloo group behind rules; with `staged`, tensors that are not the host's are copied there.

    stage_all: also stage host tensors, to test without a GPU.
    """

    def __init__(
        self, inner: dist.ProcessGroup, rules: Rules, *, staged: bool, stage_all: bool = False
    ) -> None:
        super().__init__(inner.rank(), inner.size())  # type: ignore[call-arg]
        self.inner = inner
        self.rules = rules
        self._staged = staged
        self._stage_all = stage_all
        self._name = ""

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """The name of the backend."""
        return BACKEND

    @property
    def group_name(self) -> str:
        """The name torch knows the group by."""
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def run(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Do an operation of the inner group."""
        operation = getattr(self.inner, name)
        if not self._staged:
            return operation(*arguments, **options)
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        work = operation(*(self._host(item, pairs) for item in arguments), **options)
        if work is None or not pairs:
            return work
        return _StagedWork(work, [] if name in _READS else pairs)

    def _host(self, item: Any, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
        if isinstance(item, torch.Tensor):
            if item.device.type == "cpu" and not self._stage_all:
                return item
            host = item.detach().cpu().clone()
            pairs.append((item.detach(), host))
            return host
        if isinstance(item, (list, tuple)):
            return [self._host(each, pairs) for each in item]
        return item


def _collective(name: str) -> Callable[..., Any]:
    public = _PUBLIC_NAMES.get(name, name.strip("_"))

    def method(self: WrappedGroup, *arguments: Any, **options: Any) -> Any:
        self.rules.check(public)
        return self.run(name, arguments, options)

    return method


def _point_to_point(name: str) -> Callable[..., Any]:
    def method(self: WrappedGroup, *arguments: Any, **options: Any) -> Any:
        return self.run(name, arguments, options)

    return method


for _name in _COLLECTIVES:
    setattr(WrappedGroup, _name, _collective(_name))
for _name in _POINT_TO_POINT:
    setattr(WrappedGroup, _name, _point_to_point(_name))


def register(rules: Rules, *, staged: bool, stage_all: bool = False) -> None:
    """Make the backend known, for this rank."""

    def create(settings: Any, _: Any) -> WrappedGroup:
        rank, size = settings.group_rank, settings.group_size
        gloo = dist.ProcessGroupGloo(settings.store, rank, size, timeout=settings.timeout)
        gloo._set_sequence_number_for_group()
        inner = dist.ProcessGroup(settings.store, rank, size)
        inner._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        inner._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        inner._set_group_name(GroupName(f"{settings.group_id}-inner"))
        return WrappedGroup(inner, rules, staged=staged, stage_all=stage_all)

    dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu", "cuda"])
