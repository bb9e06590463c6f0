"""Watches tensor operations of a rank: buffers in flight, and computation.

A dispatch mode sees every operation that PyTorch carries out, with its storages. While a receive
is in flight its buffer must not be touched, and a send's buffer must not be written; the mode
names the line that did. It also counts FLOPs and bytes when the run is to be timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from grader.fabric.counting import NO_COST_NAMESPACES, Count, count, tensors_in
from grader.fabric.record import Operation
from grader.fabric.torch_internals import DispatchMode, dispatches, works_out_shapes

Span = tuple[int, int]

#: Operations that look at a tensor's shape and never at its data.
_SHAPE_ONLY = (
    "empty_like",
    "zeros_like",
    "ones_like",
    "full_like",
    "rand_like",
    "randn_like",
    "new_empty",
    "new_zeros",
    "new_ones",
    "new_full",
    "new_empty_strided",
    "is_same_size",
    "sym_size",
    "sym_numel",
    "sym_stride",
    "sym_storage_offset",
    "_has_compatible_shallow_copy_type",
    "is_pinned",
    "set_",
    "resize_",
)


class _Access:
    """How one operator touches its arguments, found once from its schema."""

    __slots__ = ("none", "writes")

    def __init__(self, func: Any) -> None:
        schema = func._schema
        namespace, _, name = schema.name.partition("::")
        mutates = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
        self.none = (
            namespace in NO_COST_NAMESPACES
            or name in _SHAPE_ONLY
            or (bool(func.is_view) and not mutates)
        )
        self.writes = frozenset(
            argument.name if argument.kwarg_only else index
            for index, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        )


_access: dict[Any, _Access] = {}
_aten = torch.ops.aten
#: A reduction step on meta tensors of one shape has no effect, and costs PyTorch 10 µs.
_IN_PLACE = frozenset(
    (
        _aten.add_.Tensor,
        _aten.sub_.Tensor,
        _aten.mul_.Tensor,
        _aten.div_.Tensor,
        _aten.copy_.default,
    )
)
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def span_of(tensor: torch.Tensor) -> Span:
    """First and one past the last byte of `tensor` in its storage (a contiguous one fills it)."""
    if tensor.numel() == 0:
        return (0, 0)
    itemsize = tensor.element_size()
    if tensor.is_contiguous():
        begin = int(tensor.storage_offset()) * itemsize
        return (begin, begin + tensor.numel() * itemsize)
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    begin = int(tensor.storage_offset()) * itemsize
    return (begin, begin + (last + 1) * itemsize)


def storage_key(tensor: torch.Tensor) -> int:
    """Identity of the memory behind `tensor`; also of meta tensors, which have no address."""
    key: int = tensor.untyped_storage()._cdata
    return key


class InFlight:
    """A rank's buffers in flight, by storage."""

    __slots__ = ("by_storage",)

    def __init__(self) -> None:
        self.by_storage: dict[int, list[tuple[int, int, bool, Operation, Any]]] = {}

    def add(self, tensor: torch.Tensor, operation: Operation, is_send: bool) -> None:
        """`tensor` (contiguous) belongs to `operation` until `remove`."""
        begin, end = span_of(tensor)
        if begin == end:
            return
        storage = tensor.untyped_storage()
        # The storage is kept alive, so that its key cannot come to mean another one.
        entry = (begin, end, is_send, operation, storage)
        entries = self.by_storage.get(storage._cdata)
        if entries is None:
            self.by_storage[storage._cdata] = [entry]
        else:
            entries.append(entry)

    def remove(self, operation: Operation, tensor: torch.Tensor) -> None:
        """`operation` was waited for."""
        key = storage_key(tensor)
        entries = self.by_storage.get(key)
        if entries is None:
            return
        if len(entries) > 1:
            entries[:] = [entry for entry in entries if entry[3] is not operation]
        elif entries[0][3] is operation:
            entries.clear()
        if not entries:
            del self.by_storage[key]

    def conflict(self, tensor: torch.Tensor, write: bool) -> tuple[Operation, bool] | None:
        """The operation in flight whose buffer this access must not touch, and if it sends."""
        entries = self.by_storage.get(storage_key(tensor))
        if not entries:
            return None
        begin, end = span_of(tensor)
        for first, last, is_send, operation, _ in entries:
            if (write or not is_send) and begin < last and first < end:
                if tensor.is_contiguous() or _touches(tensor, first, last):
                    return operation, is_send
        return None


def _touches(tensor: torch.Tensor, first: int, last: int) -> bool:
    """Whether a strided tensor really has an element among bytes [first, last) of its storage."""
    itemsize = tensor.element_size()
    numel = tensor.untyped_storage().nbytes() // itemsize
    marks = torch.zeros(numel, dtype=torch.bool)
    marks.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(True)
    return bool(marks[first // itemsize : -(-last // itemsize)].any())


def _nothing_to_do(args: tuple[Any, ...]) -> bool:
    target, source = args[0], args[1]
    return bool(
        target.is_meta
        and isinstance(source, torch.Tensor)
        and source.is_meta
        and source.shape == target.shape
        and source.dtype == target.dtype
    )


class Monitor(DispatchMode):  # type: ignore[no-untyped-call]
    """The dispatch mode of one rank.

    on_conflict(operation, is_send, write): an access that must not be; it raises.
    on_compute: called with the `Count` of each operation that computes, when runs are timed.
    unseen: buffers of operations whose futures were handed out, not touched since;
    on_seen(operation): one of them is touched now.
    """

    def __init__(
        self,
        in_flight: InFlight,
        on_conflict: Callable[[Operation, bool, bool], None],
        on_compute: Callable[[Count], None] | None,
        unseen: InFlight,
        on_seen: Callable[[Operation], None],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._in_flight = in_flight
        self._unseen = unseen
        self._on_seen = on_seen
        self._on_conflict = on_conflict
        self._on_compute = on_compute

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if works_out_shapes(types):
            return func(*args, **(kwargs or {}))
        if types and any(kind not in _PLAIN and dispatches(kind) for kind in types):
            # A subclass such as DTensor unwraps itself first; its inner operations come here.
            return NotImplemented
        kwargs = kwargs or {}
        if self._in_flight.by_storage or self._unseen.by_storage:
            access = _access.get(func)
            if access is None:
                access = _access[func] = _Access(func)
            if not access.none:
                self._check(access, args, kwargs)
        if func in _IN_PLACE and _nothing_to_do(args):
            result = args[0]
        else:
            result = func(*args, **kwargs)
        if self._on_compute is not None:
            counted = count(func, args, kwargs, result)
            if counted is not None:
                self._on_compute(counted)
        return result

    def _see(self, tensor: torch.Tensor) -> None:
        while (touched := self._unseen.conflict(tensor, write=True)) is not None:
            self._on_seen(touched[0])

    def _check(self, access: _Access, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for index, value in (*enumerate(args), *kwargs.items()):
            write = index in access.writes
            for tensor in tensors_in(value):
                self._see(tensor)
                hit = self._in_flight.conflict(tensor, write)
                if hit is not None:
                    self._on_conflict(*hit, write)
