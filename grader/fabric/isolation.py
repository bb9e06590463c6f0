"""What makes a thread look like a process of its own.

Per rank: environment, `sys.argv`, random state (torch, numpy, `random`), default dtype, standard
output, import path and its own copy of the user's modules. What is cheap to swap is swapped
whenever another rank gets to run; the rest is a stand-in that looks up the calling thread's rank.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import io
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from types import ModuleType
from typing import Any, ClassVar, TextIO

import numpy as np
import torch

from grader.fabric.torch_internals import NoDispatch, dtensor_handlers, set_dtensor_handlers

Streams = tuple[Any, Any]  # standard output and errors

_local = threading.local()

#: Methods of `random.Random` and of numpy's `RandomState` that are also module-level functions.
_RANDOM_NAMES = tuple(
    name for name, f in vars(random).items() if getattr(f, "__self__", None) is random._inst
)
_NUMPY_NAMES = {
    name: name
    for name, f in vars(np.random).items()
    if getattr(f, "__self__", None) is np.random.mtrand._rand
} | {"seed": "seed", "ranf": "random_sample", "sample": "random_sample"}  # functions of their own


class RankState:
    """Everything of a rank that lives in the process, kept while another rank runs.

    standard_streams: output and errors of ranks that have not put others in their place.
    """

    standard_streams: ClassVar[Streams] = sys.stdout, sys.stderr

    def __init__(
        self, rank: int, environment: dict[str, str], argv: Sequence[str], seed: int
    ) -> None:
        self.rank = rank
        self.environment = {os.fsencode(k): os.fsencode(v) for k, v in environment.items()}
        self.argv: list[str] = list(argv)
        self.path = list(sys.path)
        self.streams: Streams | None = None
        self.modules: dict[str, ModuleType] = {}
        self.random = random.Random(f"{seed}/{rank}")
        self.numpy = np.random.RandomState((seed * 1_000_003 + rank) % 2**32)
        self.torch_state: torch.Tensor | None = None
        self.dtype = torch.get_default_dtype()
        self.dtensor_handlers: dict[Any, Any] | None = None
        self.column = 0  # of its output, to know when to print the rank in front

    def enter(self) -> None:
        """Become this rank; called by its own thread when it gets to run."""
        sys.argv, sys.path = self.argv, self.path
        sys.stdout, sys.stderr = self.streams or RankState.standard_streams
        if self.torch_state is not None:
            torch.default_generator.set_state(self.torch_state)
        if self.dtype is not torch.get_default_dtype():
            torch.set_default_dtype(self.dtype)
        handlers = dtensor_handlers()
        if handlers is not None:
            if self.dtensor_handlers is None:
                self.dtensor_handlers = dict(handlers)
            set_dtensor_handlers(self.dtensor_handlers)
        if self.modules:
            sys.modules.update(self.modules)

    def leave(self) -> None:
        """Keep what the rank may have changed."""
        self.argv, self.path = sys.argv, sys.path
        self.streams = sys.stdout, sys.stderr
        with NoDispatch():
            self.torch_state = torch.default_generator.get_state()
        self.dtype = torch.get_default_dtype()
        self.dtensor_handlers = dtensor_handlers()
        if self.modules:
            # A name that is gone was not found after all, or the rank has removed it.
            there = [name for name in self.modules if name in sys.modules]
            self.modules = {name: sys.modules.pop(name) for name in there}


def current_state() -> RankState | None:
    """The rank of the calling thread, or `None` in a thread that is no rank."""
    return getattr(_local, "state", None)


def adopt(state: RankState) -> None:
    """Make the calling thread this rank, for good."""
    _local.state = state


class _Environment(MutableMapping[bytes, bytes]):
    """The mapping behind `os.environ`, one for each rank."""

    def __init__(self, base: MutableMapping[bytes, bytes]) -> None:
        self.base = base

    def _of_rank(self) -> MutableMapping[bytes, bytes]:
        state = current_state()
        return self.base if state is None else state.environment

    def __getitem__(self, key: bytes) -> bytes:
        return self._of_rank()[key]

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._of_rank()[key] = value

    def __delitem__(self, key: bytes) -> None:
        del self._of_rank()[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter(list(self._of_rank()))

    def __len__(self) -> int:
        return len(self._of_rank())


class _Output(io.TextIOBase):
    """Standard output with the rank in front of each line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        state = current_state()
        if state is None:
            return self._stream.write(text)
        prefix = f"[rank {state.rank}] "
        for line in text.splitlines(keepends=True):
            self._stream.write(line if state.column else prefix + line)
            state.column = 0 if line.endswith("\n") else 1
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding


class _RankModules(importlib.abc.MetaPathFinder):
    """Notes which modules of the user's packages a rank imports, so that it keeps its own."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = tuple(packages)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        state = current_state()
        if state is not None and fullname not in state.modules:
            top = fullname.partition(".")[0]
            if top in self._packages:
                state.modules[fullname] = ModuleType(fullname)
        return None


def _by_rank(name: str, of: Callable[[RankState], Any], original: Any) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        state = current_state()
        source = original if state is None else getattr(of(state), name)
        return source(*args, **kwargs)

    function.__name__ = name
    function.__doc__ = getattr(original, "__doc__", None)
    return function


class Isolation:
    """Context manager: inside it, threads that `adopt` a `RankState` are apart from each other.

    packages: top-level names of which each rank imports its own copy.
    """

    def __init__(self, packages: Sequence[str] = ()) -> None:
        self._finder = _RankModules(packages)
        self._packages = tuple(packages)
        self._undo: list[Callable[[], None]] = []

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        original = getattr(owner, name)
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, original))

    def __enter__(self) -> Isolation:
        environment = _Environment(os.environ._data)  # type: ignore[attr-defined]
        self._replace(os.environ, "_data", environment)
        self._replace(os.environb, "_data", environment)
        for name in ("putenv", "unsetenv"):
            self._replace(os, name, _unless_rank(getattr(os, name)))
        RankState.standard_streams = streams = _Output(sys.stdout), _Output(sys.stderr)
        self._replace(sys, "stdout", streams[0])
        self._replace(sys, "stderr", streams[1])
        self._replace(sys, "path", list(sys.path))
        for name in _RANDOM_NAMES:
            self._replace(random, name, _by_rank(name, lambda s: s.random, getattr(random, name)))
        for name, method in _NUMPY_NAMES.items():
            original = getattr(np.random, name)
            self._replace(np.random, name, _by_rank(method, lambda s: s.numpy, original))
        argv, hook, dtype = sys.argv, sys.excepthook, torch.get_default_dtype()
        handlers = dtensor_handlers()
        random_state = torch.default_generator.get_state()
        shared = _take_modules(self._packages)
        sys.meta_path.insert(0, self._finder)

        def restore() -> None:
            sys.argv, sys.excepthook = argv, hook
            torch.set_default_dtype(dtype)
            if handlers is not None:
                set_dtensor_handlers(handlers)
            torch.default_generator.set_state(random_state)
            sys.meta_path.remove(self._finder)
            _take_modules(self._packages)
            sys.modules.update(shared)

        self._undo.append(restore)
        return self

    def __exit__(self, *exc: object) -> None:
        while self._undo:
            self._undo.pop()()


def _take_modules(packages: Sequence[str]) -> dict[str, ModuleType]:
    """Remove the modules of these packages from `sys.modules`, and return them."""
    tops = [name for name in packages if name in sys.modules]
    if not tops:  # going through all modules touches memory that a forked worker would have to copy
        return {}
    names = [name for name in sys.modules if name.partition(".")[0] in tops]
    return {name: sys.modules.pop(name) for name in names}


def _unless_rank(original: Callable[..., None]) -> Callable[..., None]:
    def function(*args: Any) -> None:
        if current_state() is None:
            original(*args)

    return function
