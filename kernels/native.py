"""The native layer: the launcher that Python imports and the runtime of CPU builds.

Built once by CMake and Ninja, at set-up (`python -m kernels.setup`) or at the first use.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from kernels import cache, compilers

HOME = Path(__file__).resolve().parent
INCLUDE = HOME / "include"
_LIBRARY = "libsimt_runtime.a"
_LAUNCHER = "tinyparallel_launcher"


class NotBuilt(RuntimeError):
    """The native layer cannot be built here; the message says what is missing."""


class BuildFailed(NotBuilt):
    """Everything needed is here, and the kit's own code does not build: its fault, not a lack."""


def sources_digest() -> str:
    """Changes with every file that the native layer, or a CPU build, is made from."""
    files = sorted(
        path
        for folder in ("include", "runtime", "launcher")
        for path in (HOME / folder).iterdir()
        if path.suffix in (".h", ".cpp")
    )
    files.append(HOME / "CMakeLists.txt")
    return cache.digest(part for path in files for part in (path.name, path.read_bytes()))


@functools.cache
def folder() -> Path:
    """Where the built launcher and runtime lie. Builds them when they are not there yet.

    Raises `NoCompiler` or `NotBuilt`.
    """
    return cache.build_once(_name(), _build)


def is_built() -> bool:
    """Whether `folder` has nothing left to build."""
    try:
        return (cache.cache_folder() / _name()).is_dir()
    except OSError:
        return False


def _name() -> str:
    python = f"{sys.implementation.cache_tag}:{sysconfig.get_platform()}"
    return f"native-{cache.digest([sources_digest(), python])}"


def library() -> Path:
    """The runtime that is linked into every CPU build."""
    return folder() / _LIBRARY


@functools.cache
def launcher() -> ModuleType:
    """The extension module `tinyparallel_launcher`. Raises `NoCompiler` or `NotBuilt`."""
    path = folder() / f"{_LAUNCHER}.so"
    loader = importlib.machinery.ExtensionFileLoader(_LAUNCHER, str(path))
    spec = importlib.util.spec_from_file_location(_LAUNCHER, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _build(destination: Path) -> None:
    compiler = compilers.cxx()
    try:
        import pybind11
    except ImportError:
        raise NotBuilt("pybind11 is not installed: pip install pybind11") from None
    cmake, ninja = _tool("cmake"), _tool("ninja")
    pybind: Any = pybind11
    with tempfile.TemporaryDirectory(prefix="tinyparallel-build-") as work:
        _run(
            [
                *(cmake, "-S", str(HOME), "-B", work, "-G", "Ninja", "-Wno-dev"),
                f"-DCMAKE_MAKE_PROGRAM={ninja}",
                f"-DCMAKE_CXX_COMPILER={compiler.path}",
                f"-DPython_EXECUTABLE={sys.executable}",
                f"-Dpybind11_DIR={pybind.get_cmake_dir()}",
                f"-DCMAKE_INSTALL_PREFIX={destination}",
            ]
        )
        _run([cmake, "--build", work, "--target", "install"])


def _tool(name: str) -> str:
    """A program of this environment's, or of the system's."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
    if found is None:
        raise NotBuilt(f"{name} is not installed: pip install {name}")
    return found


def _run(command: list[str]) -> None:
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    if result.returncode != 0:
        told = "\n".join((result.stdout + result.stderr).strip().splitlines()[-30:])
        raise BuildFailed(f"the native layer could not be built:\n{told}")
