"""Variables of the file itself: __device__ and __constant__."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.kernels.conftest import Program

Make = Callable[..., Program]


def test_scratch_that_all_blocks_share(program: Make, numbers: torch.Tensor) -> None:
    p = program("""__device__ float scratch[32];
    extern "C" __global__ void f(float* y, int64_t n) {
        int i = blockIdx.x * 32 + threadIdx.x;
        scratch[threadIdx.x] = y[i];  // write
        __syncthreads();
        y[i] = scratch[31 - threadIdx.x];  // read
    }""")
    fault = p.fault(numbers, 64, grid=2)
    assert (fault.kind, fault.block) == ("race", (1, 0, 0))
    assert (fault.line, fault.other_line) == (p.line("write"), p.line("read"))
    assert "scratch" in str(fault)
    assert "blocks run in any order" in str(fault)


@pytest.mark.parametrize("element", ["i + 4", "i - 4"])
def test_pointer_that_leaves_a_device_variable(
    program: Make, numbers: torch.Tensor, element: str
) -> None:
    p = program(f"""__device__ float table[32];
    extern "C" __global__ void f(float* y, int64_t n) {{
        float* p = table + (n == 0);
        int i = threadIdx.x;
        p[{element}] = y[i];  // here
    }}""")
    fault = p.fault(numbers, 64, block=32)
    assert (fault.kind, fault.line) == ("out_of_bounds", p.line("here"))


def test_device_variables_outlive_a_launch_but_not_a_fault(
    program: Make, numbers: torch.Tensor
) -> None:
    p = program("""__device__ int launches = 3;
    static __device__ float factor = 2;
    __constant__ float table[2] = {10, 20};
    extern "C" __global__ void f(float* y, int64_t n) {
        if (threadIdx.x == 0) launches++;
        __syncthreads();
        y[threadIdx.x] = launches * factor + table[threadIdx.x % 2];
        if (n < 0) y[n] = 0;
    }""")
    p.run(numbers, 64)
    assert numbers[:2].tolist() == [18, 28]
    p.fault(numbers, -1)
    p.run(numbers, 64)
    assert numbers[:2].tolist() == [20, 30]


def test_constant_is_not_written(program: Make, numbers: torch.Tensor) -> None:
    p = program("""static __device__ const float table[4] = {1, 2, 3, 4};
    extern "C" __global__ void f(float* y, int64_t n) {
        y[0] = table[n & 3];
        *const_cast<float*>(table + (n & 3)) = y[1];  // here
    }""")
    fault = p.fault(numbers, 64, block=1)
    assert (fault.kind, fault.line) == ("read_only", p.line("here"))


@pytest.mark.parametrize("around", ["%s", "namespace own { %s }", "namespace { static %s }"])
def test_variables_by_their_own_names(program: Make, numbers: torch.Tensor, around: str) -> None:
    text = (
        around % "__device__ int scratch[1];"
        + """
    namespace own {}
    using namespace own;
    extern "C" __global__ void f(float* y, int64_t n) {
        if (n < 9) y[0] = scratch[0];
        scratch[0] = blockIdx.x;  // here
    }"""
    )
    p = program(text)
    fault = p.fault(numbers, 64, grid=2, block=1)
    assert (fault.kind, fault.line) == ("race", p.line("here"))
    assert "race on scratch (byte 0), to which this thread writes" in str(fault)


@pytest.mark.parametrize(
    "declared",
    [
        "__constant__ float two[1] = {2};",
        "static __constant__ float two[1] = {2};",
        "extern __constant__ float two[1]; __constant__ float two[1] = {2};",
        "struct S { static __constant__ float two[1]; }; __constant__ float S::two[1] = {2};\n"
        "#define two S::two",
        "template <typename T> __constant__ T all[1] = {2};\n#define two all<float>",
    ],
)
def test_constants_however_they_are_declared(
    program: Make, numbers: torch.Tensor, declared: str
) -> None:
    p = program(
        declared
        + """
    extern "C" __global__ void f(float* y, int64_t n) { y[threadIdx.x] *= two[n & 1]; }"""
    )
    p.run(numbers, 64, block=64)
    assert numbers.tolist() == [2.0 * i for i in range(64)]


def test_large_structs_of_different_values(program: Make, numbers: torch.Tensor) -> None:
    p = program("""struct Big { float a[8]; };
    __device__ Big big;
    extern "C" __global__ void f(float* y, int64_t n) {
        Big b;
        for (int i = 0; i < 7; i++) b.a[i] = 1;
        b.a[7] = threadIdx.x;
        big = b;  // here
        if (n < 0) y[0] = big.a[7];
    }""")
    assert p.fault(numbers, 64, block=2).kind == "race"
