"""What the simulated machine says of faults, in Chinese."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from grader.report import catalogue
from tests.kernels.conftest import Program

Make = Callable[..., Program]

SHARED = "__shared__ float tile[64];\n"
# (body of the kernel, options of the launch): every kind of fault, in its variants.
FAULTS: list[tuple[str, Mapping[str, Any]]] = [
    ("y[n + threadIdx.x] = 1;", {}),
    ("y[n + 9] = y[0];", {}),
    ("y[0] = y[-1 - (int)threadIdx.x];", {}),
    ("*(float4*)(y + n - 4 + 4 * threadIdx.x) = float4{};", {}),
    ("float4* v = (float4*)(y + n - 3); v[0] = float4{};", {}),
    ("*(float4*)(y + 1) = float4{};", {}),
    ("float a = *(float*)((char*)y + 1); y[0] = a;", {}),
    ("float4 a = *(float4*)(y + 1); *(float4*)y = a;", {}),
    ("atomicAdd((int*)((char*)y + 2), 1);", {}),
    ("*(volatile int*)(n * 8) = 1;", {}),
    ("const float* p = &table[n % 4]; *const_cast<float*>(p) = 1;", {}),
    ("scratch[threadIdx.x] = blockIdx.x;", {"grid": 2}),
    ("y[0] = scratch[0]; scratch[0] = 1;", {"grid": 2, "block": 1}),
    ("y[blockIdx.x + 1] = y[blockIdx.x];", {"grid": 2, "block": 1}),
    ("y[blockIdx.x] = 1; atomicAdd(ticket, 1); y[0] += y[63 - blockIdx.x];",
     {"grid": 64, "block": 1}),
    ("atomicAdd(&y[1], 1.0f); y[1] = 2;", {"block": 64}),
    ("y[2] = 1; atomicAdd(&y[1], 1.0f); y[threadIdx.x] = y[1];", {"block": 64}),
    (SHARED + "tile[threadIdx.x] = y[threadIdx.x]; y[threadIdx.x] = tile[63 - threadIdx.x];",
     {"block": 64}),
    (SHARED + "tile[threadIdx.x] = 1; __syncthreads(); tile[0] = threadIdx.x;", {"block": 64}),
    (SHARED + "tile[0] = threadIdx.x;", {"block": 64}),
    (SHARED + "tile[threadIdx.x] = 1; __syncthreads(); y[threadIdx.x] = tile[threadIdx.x ^ 1];"
     "tile[threadIdx.x] = 2;", {"block": 64}),
    (SHARED + "tile[threadIdx.x] = y[0];", {"block": 128}),
    ("extern __shared__ float some[]; some[threadIdx.x] = y[0];", {"shared_bytes": 64}),
    (SHARED + "y[threadIdx.x] = tile[threadIdx.x];", {}),
    ("x[threadIdx.x] += 1;", {}),
    ("const_cast<float*>(input)[0] = 1;", {}),
    ("if (threadIdx.x < 5) __syncthreads();", {}),
    ("if (threadIdx.x == 5) __syncwarp();", {}),
    ("if (threadIdx.x == 5) __syncthreads();\nelse __syncthreads();", {}),
    ("__syncwarp(0xff);", {}),
    ("y[0] = __shfl_sync(0xffffffff, 1, 0, 5);", {}),
    ("if (threadIdx.x >= 8) return; y[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1, 8);", {}),
    ("y[0] = 7 / (int)(threadIdx.x / 99);", {}),
    ("__trap();", {}),
    ("assert(y[threadIdx.x] < 7);", {}),
    ("", {}),
    ("x[threadIdx.x] = 1;", {}),
    ("if (threadIdx.x) x[threadIdx.x] = x[threadIdx.x + 32] = 1;", {}),
]  # fmt: skip


@pytest.mark.parametrize(("body", "options"), FAULTS)
def test_faults_are_told_in_chinese(
    program: Make, numbers: torch.Tensor, body: str, options: Mapping[str, Any]
) -> None:
    p = program(
        "#include <cassert>\n__device__ float scratch[32];\n"
        "static __device__ const float table[4] = {1, 2, 3, 4};\n"
        'extern "C" __global__ void f(float* y, float* x, const float* input, int* ticket, '
        f"int64_t n) {{\n{body}\n}}",
        ["x"],
    )
    ticket = torch.zeros(1, dtype=torch.int32)
    fault = p.fault(numbers, numbers.clone(), numbers.clone(), ticket, 64, **options)
    told = catalogue.translate(str(fault))
    for line in told.splitlines():
        words = re.sub(r"`[^`]*`|kernels\.cu:\d+", "", line.partition("：")[2] or line)
        assert re.search(r"[\u4e00-\u9fff]", words), f"{fault}\n{told}"
        assert not re.search(r"\b(?!lane|block)[a-z]+ [a-z]+", words), f"{fault}\n{told}"
