# mypy: disable-error-code="override,assignment,no-untyped-call"
"""Handles on simulated operations, as `torch.distributed` gives them out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from grader.fabric.engine import Pending
from grader.fabric.runtime import RankRuntime


class SimWork(dist.Work):
    """A handle on one or more operations of a rank."""

    def __init__(self, runtime: RankRuntime, pendings: Sequence[Pending], result: Any) -> None:
        super().__init__()
        self._runtime = runtime
        self._pendings = pendings
        self._result = result
        self._source = -1

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the operation is done and its buffers hold the result.

        The time-out is not used: a simulated run that cannot go on is reported at once.
        """
        for pending in self._pendings:
            self._runtime.wait(pending)
            self._source = pending.source
        return True

    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is done (then it counts as waited for); lets the other ranks run first."""
        return all(self._runtime.poll(pending) for pending in self._pendings)

    def is_success(self) -> bool:
        """As `is_completed`: a simulated operation that fails ends the run."""
        return self.is_completed()

    def exception(self) -> None:
        """Never one: a simulated operation that fails ends the run."""
        return None

    def result(self) -> Any:
        """The tensors the operation filled, after waiting for it."""
        self.wait()
        return self._result

    def get_future(self) -> torch.futures.Future[Any]:
        """A future that is already complete: native code would block on it without our knowing."""
        for pending in self._pendings:
            self._runtime.settle(pending)
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._result)
        return future

    def _source_rank(self) -> int:
        self.wait()
        return self._source

    source_rank = _source_rank


class AnySourceWork(SimWork):
    """A receive from any source knows, once done, which group rank it came from."""

    def __init__(
        self, runtime: RankRuntime, pendings: Sequence[Pending], result: Any, ranks: Sequence[int]
    ) -> None:
        super().__init__(runtime, pendings, result)
        self._group_ranks = ranks

    def _source_rank(self) -> int:
        self.wait()
        return self._group_ranks.index(self._source)

    source_rank = _source_rank
