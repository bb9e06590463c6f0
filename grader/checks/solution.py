"""Loading a solution folder inside a worker, once for each rank.

The folder becomes a package of its own name, whose files are compiled once and executed anew for
every rank: a global of a module belongs to one rank, as it would between processes.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import marshal
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from grader import tasks

#: What a solution has no business importing: it would be no solution outside this kit.
_FORBIDDEN = ("grader", "reference", "assignments", "tests", "_pytest", "pytest")


class SolutionImportError(ImportError):
    """A file of the solution is missing, or lacks what the task table names."""


class _Loader(importlib.abc.Loader):
    def __init__(self, code: CodeType | None) -> None:
        self._code = code

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if self._code is not None:
            exec(self._code, module.__dict__)


class SolutionFinder(importlib.abc.MetaPathFinder):
    """Finds the modules of one solution folder, and hides the kit from them.

    folder: holds `a1_collectives/…`. package: the top-level name its modules get.
    """

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self.folder = folder
        self._cache = cache
        name = folder.name
        usable = name.isidentifier() and name not in ("grader", "tests", "kernels")
        self.package = name if usable and name not in sys.stdlib_module_names else "solution"
        self._code: dict[Path, CodeType] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module of the solution; `None` for all others."""
        top, *rest = fullname.split(".")
        if top != self.package:
            if top in ("reference", "assignments", "tests"):
                raise ModuleNotFoundError(
                    f"a solution cannot import {fullname!r}: use relative imports inside your own "
                    f"files (from .point_to_point import …)",
                    name=fullname,
                )
            return None
        place = self.folder.joinpath(*rest)
        if place.is_dir():
            init = place / "__init__.py"
            spec = importlib.machinery.ModuleSpec(
                fullname,
                _Loader(self._compiled(init) if init.is_file() else None),
                origin=str(init),
                is_package=True,
            )
            spec.submodule_search_locations = [str(place)]
        else:
            file = place.with_suffix(".py")
            if not file.is_file():
                return None
            spec = importlib.machinery.ModuleSpec(
                fullname, _Loader(self._compiled(file)), origin=str(file)
            )
        spec.has_location = True
        return spec

    def _compiled(self, file: Path) -> CodeType:
        code = self._code.get(file)
        if code is None:
            code = self._code[file] = self._from_cache(file, file.read_bytes())
        return code

    def _from_cache(self, file: Path, source: bytes) -> CodeType:
        """Compiling costs more than a small run does, and every worker would do it anew.

        The cache belongs to one grading of one solution, and only workers read it: whoever
        tampers with it changes nothing but what his own code does.
        """
        if self._cache is None:
            return _compile(file, source)
        kept = (
            self._cache
            / hashlib.blake2b(str(file).encode() + b"\0" + source, digest_size=20).hexdigest()
        )
        try:
            code = marshal.loads(kept.read_bytes())
        except (OSError, ValueError, EOFError, TypeError):
            code = None
        if isinstance(code, CodeType):
            return code
        code = _compile(file, source)
        part = kept.with_name(f"{kept.name}.{os.getpid()}")
        try:
            part.write_bytes(marshal.dumps(code))
            part.replace(kept)
        except OSError:
            part.unlink(missing_ok=True)  # a full or read-only disk: the next worker compiles too
        return code

    def function(self, task_id: str) -> Any:
        """The student's function or class of a task, in the calling rank's copy of its module.

        Raises SolutionImportError when the file or the name is not there.
        """
        task = tasks.find(task_id)
        name = f"{self.package}.{task.module}"
        if not (self.folder / task.path).is_file():
            raise SolutionImportError(f"{task.path} is missing from {self.folder}")
        module = importlib.import_module(name)
        try:
            return getattr(module, task.attribute)
        except AttributeError:
            raise SolutionImportError(
                f"{task.path} defines no {task.attribute} (the name is fixed by the task table)"
            ) from None


def _compile(file: Path, source: bytes) -> CodeType:
    tree = ast.parse(source, str(file))
    _refuse_imports(tree, file)
    return compile(tree, str(file), "exec", dont_inherit=True)


def _refuse_imports(tree: ast.AST, file: Path) -> None:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        for name in names:
            if name.partition(".")[0] in _FORBIDDEN:
                raise SolutionImportError(
                    f"{file.name}:{getattr(node, 'lineno', 0)}: a solution cannot import {name!r}; "
                    f"it may use the standard library, torch, numpy, networkx and its own files "
                    f"(by relative imports)"
                )


def install(folder: Path, cache: Path | None = None) -> SolutionFinder:
    """Make the folder importable in this process. cache: where compiled files may be kept."""
    finder = SolutionFinder(folder, cache)
    sys.meta_path.insert(0, finder)
    return finder
