"""memcpy, memmove and memset in a kernel: accesses like any other, whatever the compiler."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.kernels.conftest import Program

Make = Callable[..., Program]


@pytest.mark.parametrize("name", ["memcpy", "memmove", "std::memcpy"])
@pytest.mark.parametrize("nbytes", ["n * sizeof(float)", "64"])
def test_rows_that_are_copied(program: Make, numbers: torch.Tensor, name: str, nbytes: str) -> None:
    text = """#include <cstring>
    extern "C" __global__ void f(float* y, const float* x, int64_t n) {
        if (threadIdx.x < 4)
            %s(y + threadIdx.x * n, x + threadIdx.x * n, %s);  // here
    }"""
    y = torch.zeros(64)
    program(text % (name, nbytes), ["y"]).run(y, numbers, 16)
    assert torch.equal(y, numbers)
    p = program(text % (name, nbytes.replace("n *", "(n + 1) *").replace("64", "68")), ["y"])
    fault = p.fault(y, numbers, 16)
    assert (fault.kind, fault.line) in (("out_of_bounds", p.line("here")), ("race", p.line("here")))


def test_shared_memory_that_is_set(program: Make, numbers: torch.Tensor) -> None:
    text = """extern "C" __global__ void f(float* y, int64_t n) {
        __shared__ float s[64];
        if (threadIdx.x == 0) memset(s, 0, %s);
        __syncthreads();
        y[threadIdx.x] = s[threadIdx.x];  // here
    }"""
    program(text % "sizeof s").run(numbers, 64, block=64)
    assert numbers.sum() == 0
    p = program(text % "128")
    fault = p.fault(numbers, 64, block=64)
    assert (fault.kind, fault.line) == ("uninitialised", p.line("here"))
    assert program(text % "257").fault(numbers, 64, block=64).kind == "out_of_bounds"


def test_copies_of_structs_stay_right(program: Make) -> None:
    p = program(
        """struct Row { float v[40]; int tag; };
        struct __align__(16) Pack { float v[4]; };
        extern "C" __global__ void f(float* y, const float* x, int64_t n) {
            __shared__ Row rows[2];
            Row mine = {};
            for (int i = 0; i < 40; i++) mine.v[i] = x[i] + threadIdx.x;
            rows[threadIdx.x] = mine;
            __syncthreads();
            Row other = rows[1 - threadIdx.x];
            Pack pack = *reinterpret_cast<const Pack*>(other.v + 4);
            *reinterpret_cast<Pack*>(y + 4 * threadIdx.x) = pack;
        }""",
        ["y"],
    )
    y = torch.zeros(8)
    p.run(y, torch.arange(40.0), 8, block=2)
    assert y.tolist() == [5, 6, 7, 8, 4, 5, 6, 7]


def test_race_by_a_copy_of_a_struct(program: Make) -> None:
    p = program("""struct Row { float v[40]; };
        extern "C" __global__ void f(float* y, int64_t n) {
            __shared__ Row row;
            Row mine;
            for (int i = 0; i < 40; i++) mine.v[i] = threadIdx.x;
            row = mine;  // here
            __syncthreads();
            y[threadIdx.x] = row.v[threadIdx.x];
        }""")
    fault = p.fault(torch.zeros(32), 8)
    assert (fault.kind, fault.line) == ("race", p.line("here"))
