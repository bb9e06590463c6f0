"""A `dist.Store` for simulated ranks: waiting in it lets the other ranks run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from grader.fabric.findings import SimulationAborted
from grader.fabric.runtime import RankRuntime

#: What torch gives a store that nobody set another one for.
DEFAULT_TIMEOUT = timedelta(minutes=5)


class SimStore(Store):
    """One rank's view of the store that all ranks of a run share.

    data: the shared keys and values. on_use(name) is called for every access of the program's.
    Time-outs that the program chose run on the host's clock. A wait under the default one that
    can never end is reported as a deadlock at once.
    """

    def __init__(
        self,
        runtime: RankRuntime,
        data: dict[str, bytes],
        on_use: Callable[[RankRuntime, str], None] | None = None,
    ) -> None:
        super().__init__()
        self._runtime = runtime
        self._data = data
        self._on_use = on_use

    def _use(self, name: str, *, look: bool = False) -> None:
        self._runtime.check_thread()
        if self._runtime.scheduler.aborted:
            raise SimulationAborted("the run has ended")
        if self._on_use is not None:
            self._on_use(self._runtime, name)
        if look:
            self._runtime.scheduler.yield_now(self._runtime.thread)

    def set(self, key: str, value: str | bytes) -> None:
        """Set key to value."""
        self._use("set")
        self._data[key] = _bytes(value)

    def get(self, key: str) -> bytes:
        """The value of key, once somebody has set it. DistStoreError after the time-out."""
        self.wait([key])
        return self._data[key]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are set. DistStoreError after the time-out."""
        self._use("wait")
        # A PrefixStore around this one sets the time-out in C++, past any override of ours.
        limit = self.timeout if timeout is None else timeout  # type: ignore[attr-defined]
        deadline = time.monotonic() + limit.total_seconds() if limit != DEFAULT_TIMEOUT else None
        there = self._runtime.scheduler.wait_until(
            self._runtime.thread, lambda: all(key in self._data for key in keys), deadline
        )
        if not there:
            missing = [key for key in keys if key not in self._data]
            raise dist.DistStoreError(
                f"wait timeout after {int(limit.total_seconds() * 1000)}ms, keys: {missing}"
            )

    def add(self, key: str, amount: int) -> int:
        """Add to a counter and return its value."""
        self._use("add", look=amount == 0)
        value = int(self._data.get(key, b"0")) + amount
        self._data[key] = str(value).encode()
        return value

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are set; lets the other ranks run first."""
        self._use("check", look=True)
        return all(key in self._data for key in keys)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set key to desired if it is expected (or unset and expected is empty)."""
        self._use("compare_set", look=True)
        wanted, value = _bytes(expected), _bytes(desired)
        if self._data.get(key, b"") == wanted:
            self._data[key] = value
        return self._data.get(key, wanted)

    def delete_key(self, key: str) -> bool:
        """Forget key; whether it was there."""
        self._use("delete_key")
        return self._data.pop(key, None) is not None

    def num_keys(self) -> int:
        """Number of keys; lets the other ranks run first."""
        self._use("num_keys", look=True)
        return len(self._data)

    def append(self, key: str, value: str | bytes) -> None:
        """Append to the value of key."""
        self._use("append")
        self._data[key] = self._data.get(key, b"") + _bytes(value)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of several keys, once all are set."""
        self.wait(keys)
        return [self._data[key] for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set several keys."""
        self._use("multi_set")
        for key, value in zip(keys, values, strict=True):
            self._data[key] = _bytes(value)

    def has_extended_api(self) -> bool:
        """append, multi_get and multi_set are there."""
        return True

    # The names under which torch's C++ looks for the same methods.
    getNumKeys = num_keys
    deleteKey = delete_key
    compareSet = compare_set
    multiGet = multi_get
    multiSet = multi_set
    hasExtendedApi = has_extended_api


def _bytes(value: str | bytes | Sequence[int]) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
