"""Live bytes of one rank's tensors, by weak references to their storages.

A dispatch mode notes the storage of every tensor that an operation returns. Storages that are
emptied (`resize_(0)`) count with the bytes they have, storages that are gone with none; views count
once. All ranks live in one process, so the interpreter's own figures would say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from grader.fabric.torch_internals import DispatchMode, push_mode


class LiveBytes(DispatchMode):  # type: ignore[no-untyped-call]
    """Follows the memory of the calling rank from `start` to the end of its thread.

    peak: most bytes alive at once since `restart`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._storages: dict[int, StorageWeakRef] = {}

    def start(self, *tensors: torch.Tensor) -> None:
        """Begin; `tensors` are alive already. It is never popped: the mode ends with its thread."""
        for tensor in tensors:
            self._add(tensor)
        push_mode(self)
        self.restart()

    def restart(self) -> None:
        """Forget the peak."""
        self.peak = self.live()

    def live(self) -> int:
        """Bytes alive now."""
        total = 0
        for key, reference in list(self._storages.items()):
            storage = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
            if storage is None:
                del self._storages[key]
            else:
                total += storage.nbytes()
        self.peak = max(self.peak, total)
        return total

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:
            # A weak reference keeps the address from being used again.
            self._storages[storage._cdata] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            self._add(tensor)
        if not func.is_view:
            self.live()
        return result


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
