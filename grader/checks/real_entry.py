"""What runs in the processes of a real world: a driver beside the student's code, on one rank.

Drivers are those of the simulated cluster. Called by name through the harness.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from grader.checks.solution import SolutionFinder, install
from grader.harness import words
from grader.harness.throughput_rank import Step
from grader.harness.worlds_rank import RealRank, current

T = TypeVar("T")
Buffers = dict[str, torch.Tensor]


class RealContext:
    """What a driver sees of the rank it runs on; the same members as `context.RankContext`.

    finder: None where only the kit's own code runs.
    """

    def __init__(self, here: RealRank, finder: SolutionFinder | None) -> None:
        self.rank = here.rank
        self.world_size = here.world_size
        self.store = here.store
        self.device = here.device
        self._here = here
        self._finder = finder
        self._groups: dict[tuple[int, ...], dist.ProcessGroup | None] = {}

    def function(self, task: str) -> Any:
        """The student's function or class of this task."""
        if self._finder is None:
            raise RuntimeError(f"this world runs without a solution; it has no {task}")
        return self._here.call(self._finder.function, task)

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run student code: the rules of its task apply."""
        return self._here.call(function, *args, **kwargs)

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


def _driver(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    driver: Callable[..., Any] = getattr(
        importlib.import_module(f"grader.checks.drivers.{module}"), attribute
    )
    return driver


def _context(payload: dict[str, Any]) -> RealContext:
    folder, cache = payload["folder"], payload.get("cache")
    finder = None if folder is None else install(Path(folder), Path(cache) if cache else None)
    return RealContext(current(), finder)


def run(payload: dict[str, Any]) -> Any:
    """Run `payload["driver"]` ("a1:collective") on this rank's `inputs`; returns its output.

    payload: driver, folder, cache (a folder or None), inputs, seed.
    """
    context = _context(payload)
    torch.manual_seed(payload["seed"] + context.rank)
    inputs = moved(payload["inputs"], context.device)
    return _data(_driver(payload["driver"])(context, inputs))


def prepare(payload: dict[str, Any], buffers: Buffers) -> Step:
    """Prepare a timed driver: driver(context, given, buffers) returns the step.

    payload: driver, folder (None for a baseline), cache, given, seed.
    """
    context = _context(payload)
    torch.manual_seed(payload["seed"])
    given = moved(payload["given"], context.device)
    step: Step = _driver(payload["driver"])(context, given, buffers)
    return step


def deliver(buffer: torch.Tensor, result: Any, what: str) -> None:
    """Copy what the student's code returned into the examiner's buffer, within the timed step.

    Raises TypeError for anything but a plain tensor (what a subclass holds may be made when
    somebody looks), ValueError for another shape or dtype than the buffer's.
    """
    if type(result) not in (torch.Tensor, torch.nn.Parameter):
        raise TypeError(f"{what} is a {type(result).__qualname__}; expected a plain torch.Tensor")
    if result.shape != buffer.shape or result.dtype != buffer.dtype:
        raise ValueError(
            f"{what} has shape {tuple(result.shape)} and dtype {result.dtype}; expected "
            f"{tuple(buffer.shape)} and {buffer.dtype}"
        )
    buffer.copy_(result.detach())


def _data(value: Any) -> Any:
    """What goes back: detached, on the host; everything else is judged by the codec."""
    if isinstance(value, torch.Tensor):
        return value.detach() if value.is_meta else value.detach().cpu()
    if type(value) is str:
        return words.clipped(value)
    if isinstance(value, dict):
        value = words.error_of(value) if "type" in value and "message" in value else value
        return {key: _data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_data(item) for item in value)
    return value


def moved(value: Any, device: str) -> Any:
    """`value` with its tensors on `device`; tensors on meta stay there."""
    if isinstance(value, torch.Tensor):
        here = value.is_meta or value.device == torch.device(device)
        return value if here else value.to(device)
    if isinstance(value, dict):
        return {key: moved(item, device) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(moved(item, device) for item in value)
    return value
