"""Which compilers there are: a C++17 compiler for builds on the CPU, nvcc for GPUs."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT = "TINYPARALLEL_CXX"


class NoCompiler(RuntimeError):
    """There is none; the message says what to install or set."""


class CompileError(RuntimeError):
    """The compiler refused a file. The message is the compiler's own."""


@dataclass(frozen=True)
class Compiler:
    """path: as it is called. kind: "gcc", "clang" or "nvcc". identity: changes with the binary.

    major: the first number of its version, 0 when that is not known.
    """

    path: str
    kind: str
    identity: str
    major: int = 0

    def run(self, arguments: Sequence[str], folder: Path, seconds: float = 60.0) -> str:
        """Compile, in `folder`; what it printed. Raises `CompileError` with that when it fails."""
        environment = {**os.environ, "LC_ALL": "C"}
        try:
            result = subprocess.run(
                [self.path, *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CompileError(f"{self.path} did not end within {seconds:g} s") from None
        text = result.stderr + result.stdout
        if result.returncode != 0:
            raise CompileError(text.strip() or f"{self.path} ended with {result.returncode}")
        return text


def cxx() -> Compiler:
    """The C++ compiler: $TINYPARALLEL_CXX, $CXX, else g++, clang++ or c++. May raise NoCompiler."""
    named = os.environ.get(ENVIRONMENT) or os.environ.get("CXX")
    return _cxx(named or "", os.environ.get("PATH", ""))


def nvcc() -> Compiler:
    """NVIDIA's compiler: $CUDA_HOME/bin/nvcc, else from the path. Raises `NoCompiler`."""
    home = os.environ.get("CUDA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "nvcc")) if home else None
    found = found or shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if found is None:
        raise NoCompiler("nvcc is not installed: kernels cannot be built for GPUs")
    return Compiler(found, "nvcc", _identity(found))


@functools.cache
def _cxx(named: str, path: str) -> Compiler:
    for name in [named] if named else ["g++", "clang++", "c++"]:
        found = shutil.which(name, path=path)
        if found is not None:
            kind, major = _version(found)
            return Compiler(found, kind, _identity(found), major)
    if named:
        raise NoCompiler(f"{named} (from {ENVIRONMENT} or CXX) is not there")
    raise NoCompiler(
        "no C++ compiler: install g++ or clang++ (Debian: apt install g++), then run "
        "`python -m kernels.setup`"
    )


def _version(path: str) -> tuple[str, int]:
    """The compiler's kind and its major version."""
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    kind = "clang" if "clang" in told.lower() else "gcc"
    number = re.search(r"(\d+)\.\d+\.\d+", re.sub(r"\([^)]*\)", "", told))
    return kind, int(number[1]) if number is not None else 0


def _identity(path: str) -> str:
    binary = Path(path).resolve()
    status = binary.stat()
    return f"{binary}:{status.st_size}:{status.st_mtime_ns}"
