"""How much shared memory a kernel may have, as ptxas and the driver have it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernels.compilers import CompileError
from tests.kernels.conftest import Program

Make = Callable[..., Program]


def _kernel(*elements: int) -> str:
    arrays = "".join(f"    __shared__ float s{i}[{n}];\n" for i, n in enumerate(elements))
    uses = "".join(
        f"    s{i}[threadIdx.x] = y[threadIdx.x];  // use {i}\n"
        f"    y[threadIdx.x] = s{i}[threadIdx.x];\n"
        for i in range(len(elements))
    )
    return 'extern "C" __global__ void f(float* y, int64_t n) {\n' + arrays + uses + "}"


def test_one_variable(program: Make) -> None:
    program(_kernel(12288)).run(torch.zeros(32), 32)
    with pytest.raises(CompileError) as caught:
        program(_kernel(16416)).run(torch.zeros(32), 32, mode="fast")
    assert "`s0` uses too much shared data (65664 bytes, 49152 at most)" in str(caught.value)


def test_variables_of_one_kernel(program: Make) -> None:
    program(_kernel(6144, 6144)).run(torch.zeros(32), 32)
    p = program(_kernel(6144, 6144, 32))
    fault = p.fault(torch.zeros(32), 32)
    assert (fault.kind, fault.line) == ("bad_launch", p.line("use 2"))
    assert "uses too much shared data (49280 bytes with s2 at" in str(fault)


def test_variables_and_what_the_launch_asks_for(program: Make) -> None:
    p = program(_kernel(12288))
    p.run(torch.zeros(32), 32, shared_bytes=179 << 10)
    fault = p.fault(torch.zeros(32), 32, shared_bytes=180 << 10)
    assert fault.kind == "bad_launch"
    assert "232448 at most" in str(fault)


def test_variables_of_different_kernels_do_not_add_up(program: Make) -> None:
    other = """
    extern "C" __global__ void f2(float* y) { __shared__ float t[9000]; t[0] = 1; y[0] = t[0]; }
    """
    p = program(_kernel(9000))
    p.path.write_text(p.path.read_text() + other)
    p.run(torch.zeros(32), 32)
