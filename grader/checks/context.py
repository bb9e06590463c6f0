"""What a driver sees of the rank it runs on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from grader.checks.solution import SolutionFinder
from grader.fabric import region

T = TypeVar("T")


class RankContext:
    """Handed to drivers: the rank, the student's functions, groups, the store.

    Nothing of what a driver does itself is counted; what it runs through `call` is.
    """

    def __init__(
        self, rank: int, world_size: int, finder: SolutionFinder, store: Store, device: str
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.store = store
        self.device = device
        self._finder = finder
        self._groups: dict[tuple[int, ...], dist.ProcessGroup | None] = {}

    def function(self, task: str) -> Any:
        """The student's function or class of this task, in this rank's own copy."""
        with region(True):
            return self._finder.function(task)

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run student code: its communication is counted and its rules apply."""
        with region(True):
            return function(*args, **kwargs)

    def group(self, ranks: Sequence[int] | None) -> dist.ProcessGroup | None:
        """A sub-group of these global ranks, in this order (`None`: the default group).

        Every rank must call it, in the same order; a rank outside the group gets
        `dist.GroupMember.NON_GROUP_MEMBER`.
        """
        if ranks is None:
            return None
        key = tuple(ranks)
        if key not in self._groups:
            self._groups[key] = dist.new_group(
                list(ranks), timeout=timedelta(minutes=5), sort_ranks=False
            )
        return self._groups[key]
