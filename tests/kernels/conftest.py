"""Small kernels, written in a test and launched on the simulated machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from kernels.compilers import NoCompiler, cxx
from kernels.contracts import Contract
from kernels.faults import KernelFault
from kernels.library import Argument, KernelFile, Mode


@pytest.fixture(scope="session", autouse=True)
def _compiler() -> None:
    try:
        cxx()
    except NoCompiler as problem:
        pytest.skip(str(problem))


class Program:
    """One kernel in a file of its own; the lines of faults are looked up by a comment in it."""

    def __init__(self, folder: Path, text: str, outputs: Sequence[str]) -> None:
        match = re.search(r"extern \"C\" __global__ (void \w+\([^)]*\))", text)
        assert match is not None
        self.text = text
        self.path = folder / "scratch" / "kernels.cu"
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(text)
        self.contract = Contract(
            " ".join(match[1].replace("__restrict__", "").split()), frozenset(outputs)
        )
        self.file = KernelFile(self.path, [self.contract])

    def run(
        self,
        *arguments: Argument,
        grid: int | tuple[int, ...] = 1,
        block: int | tuple[int, ...] = 32,
        shared_bytes: int = 0,
        mode: Mode = "checked",
    ) -> None:
        """Launch it."""
        self.file.launch(
            self.contract.name,
            arguments,
            grid=grid,
            block=block,
            shared_bytes=shared_bytes,
            mode=mode,
        )

    def fault(
        self,
        *arguments: Argument,
        grid: int | tuple[int, ...] = 1,
        block: int | tuple[int, ...] = 32,
        shared_bytes: int = 0,
        mode: Mode = "checked",
    ) -> KernelFault:
        """Launch it; it must fail."""
        with pytest.raises(KernelFault) as caught:
            self.run(*arguments, grid=grid, block=block, shared_bytes=shared_bytes, mode=mode)
        return caught.value

    def line(self, comment: str) -> int:
        """The line that holds `// comment`."""
        lines = self.text.splitlines()
        return next(i for i, line in enumerate(lines, 1) if f"// {comment}" in line)


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Program]:
    """`program(text, outputs)`: a kernel from its text."""

    def make(text: str, outputs: Sequence[str] = ()) -> Program:
        prelude = "#include <cstdint>\n#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n"
        return Program(tmp_path, prelude + text, outputs)

    return make


@pytest.fixture
def numbers() -> torch.Tensor:
    """(64,) float32: 0, 1, 2, …"""
    return torch.arange(64, dtype=torch.float32)
