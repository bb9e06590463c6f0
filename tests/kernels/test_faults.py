"""Checked mode: every kind of fault is found, with kernel, block, thread and line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.kernels.conftest import Program

Make = Callable[..., Program]


def test_read_past_the_end_of_a_tensor(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, const float* x, int64_t n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[i % n] = x[i];  // here
    }""")
    fault = p.fault(numbers.clone(), numbers[:50].clone(), 64, grid=2)
    assert (fault.kind, fault.kernel, fault.line) == ("out_of_bounds", "f", p.line("here"))
    assert (fault.block, fault.thread) == ((1, 0, 0), (18, 0, 0))
    assert "reads 4 bytes at x[50]" in str(fault)
    assert "50 elements of 4 bytes" in str(fault)


def test_write_before_the_start_of_a_tensor(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        y[(int)threadIdx.x - 1] = 0;  // here
    }""")
    fault = p.fault(numbers, 64)
    assert (fault.kind, fault.line, fault.thread) == ("out_of_bounds", p.line("here"), (0, 0, 0))
    assert "writes 4 bytes at y[-1]" in str(fault)


def test_vector_access_that_overlaps_the_end(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        float4* v = reinterpret_cast<float4*>(y);
        if (threadIdx.x * 4 < n) {
            float4 a = v[threadIdx.x];  // here
            a.x += 1;
            v[threadIdx.x] = a;
        }
    }""")
    fault = p.fault(numbers[:50].clone(), 50)
    assert (fault.kind, fault.thread) == ("out_of_bounds", (12, 0, 0))
    assert fault.line in (p.line("here"), p.line("here") + 1, p.line("here") + 2)


def test_misaligned_vector_access(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        float4* v = reinterpret_cast<float4*>(y);
        float4 a = v[threadIdx.x];  // here
        a.x += 1;
        v[threadIdx.x] = a;
    }""")
    fault = p.fault(numbers[1:17], 16, block=4)
    assert (fault.kind, fault.line, fault.thread) == ("misaligned", p.line("here"), (0, 0, 0))
    assert "no multiple of 16" in str(fault)


def test_index_outside_a_static_shared_array(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        __shared__ float tile[16];
        tile[threadIdx.x] = y[threadIdx.x];  // here
        __syncthreads();
        y[threadIdx.x] = tile[15 - threadIdx.x];
    }""")
    fault = p.fault(numbers, 64)
    assert (fault.kind, fault.line, fault.thread) == ("out_of_bounds", p.line("here"), (16, 0, 0))


def test_dynamic_shared_memory_past_what_was_asked_for(
    program: Make, numbers: torch.Tensor
) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        extern __shared__ float tile[];
        tile[threadIdx.x] = y[threadIdx.x];  // here
        __syncthreads();
        y[threadIdx.x] = tile[31 - threadIdx.x];
    }""")
    p.run(numbers, 64, shared_bytes=128)
    assert numbers[:32].tolist() == list(range(31, -1, -1))
    fault = p.fault(numbers, 64, shared_bytes=64)
    assert (fault.kind, fault.line, fault.thread) == ("out_of_bounds", p.line("here"), (16, 0, 0))
    assert "64 bytes" in str(fault)


def test_missing_barrier_is_a_race_on_shared_memory(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        __shared__ float tile[64];
        tile[threadIdx.x] = y[threadIdx.x];  // write
        y[threadIdx.x] = tile[63 - threadIdx.x];  // read
    }""")
    fault = p.fault(numbers, 64, block=64)
    assert fault.kind == "race"
    assert {fault.line, fault.other_line} == {p.line("write"), p.line("read")}
    assert "tile" in str(fault)


def test_missing_second_barrier_of_a_loop_is_a_race(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        __shared__ float tile[64];
        for (int k = 0; k < 2; k++) {
            tile[threadIdx.x] = y[threadIdx.x];  // write
            __syncthreads();
            y[threadIdx.x] = tile[63 - threadIdx.x];  // read
        }
    }""")
    fault = p.fault(numbers, 64, block=64)
    assert fault.kind == "race"
    assert {fault.line, fault.other_line} == {p.line("write"), p.line("read")}


WARP_TREE = """extern "C" __global__ void f(float* y, int64_t n) {
    __shared__ float part[32];
    int lane = threadIdx.x;
    part[lane] = y[lane];
    %s
    for (int step = 16; step > 0; step /= 2) {
        if (lane < step) part[lane] += part[lane + step];  // add
        %s
    }
    if (lane == 0) y[0] = part[0];
}"""


def test_warp_without_syncwarp_is_a_race_and_with_it_is_none(
    program: Make, numbers: torch.Tensor
) -> None:
    fault = program(WARP_TREE % ("__syncwarp();", "")).fault(numbers.clone(), 64)
    assert fault.kind == "race"
    assert "__syncwarp" in str(fault)
    program(WARP_TREE % ("__syncwarp();", "__syncwarp();")).run(numbers, 64)
    assert numbers[0] == sum(range(32))


def test_plain_addition_to_one_place_is_a_race(program: Make, numbers: torch.Tensor) -> None:
    text = """extern "C" __global__ void f(float* total, const float* x, int64_t n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) %s  // here
    }"""
    p = program(text % "total[0] += x[i];")
    fault = p.fault(torch.zeros(1), numbers, 64)
    assert (fault.kind, fault.line) == ("race", p.line("here"))
    fault = p.fault(torch.zeros(1), numbers, 64, grid=2, block=1)
    assert (fault.kind, fault.line) == ("race", p.line("here"))
    assert "blocks run in any order" in str(fault)
    total = torch.zeros(1)
    program(text % "atomicAdd(total, x[i]);").run(total, numbers, 64, grid=2)
    assert total.item() == sum(range(64))


@pytest.mark.parametrize("step", [1.0, 0.0])
def test_values_that_differ_in_their_last_byte_only_are_a_race_in_shared_memory(
    program: Make, numbers: torch.Tensor, step: float
) -> None:
    # 0.0, 1.0, … as floats begin with the same bytes in memory.
    p = program("""extern "C" __global__ void f(float* y, int64_t n, float step) {
        __shared__ float one;
        one = threadIdx.x * step;  // here
        __syncthreads();
        y[threadIdx.x] = one;
    }""")
    arguments = numbers[:2].clone(), 2, step
    if step == 0.0:  # all of them write one value
        p.run(*arguments, block=2)
        return
    fault = p.fault(*arguments, block=2)
    assert (fault.kind, fault.line) == ("race", p.line("here"))


def test_equal_values_written_by_all_threads_are_no_race(
    program: Make, numbers: torch.Tensor
) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        __shared__ float s;
        s = 3.0f;
        __syncthreads();
        y[0] = s;
    }""")
    p.run(numbers, 64)
    assert numbers[0] == 3


def test_last_block_that_gathers_after_a_fence_is_no_race(
    program: Make, numbers: torch.Tensor
) -> None:
    p = program("""extern "C" __global__ void f(float* part, int* ticket, int64_t n) {
        __shared__ bool last;
        if (threadIdx.x == 0) {
            part[1 + blockIdx.x] = blockIdx.x;
            __threadfence();
            last = atomicAdd(ticket, 1) == (int)gridDim.x - 1;
        }
        __syncthreads();
        if (last && threadIdx.x == 0) {
            float sum = 0;
            for (int b = 0; b < (int)gridDim.x; b++) sum += part[1 + b];
            part[0] = sum;
        }
    }""")
    p.run(numbers, torch.zeros(1, dtype=torch.int32), 64, grid=8)
    assert numbers[0] == sum(range(8))


def test_barrier_in_a_branch_names_who_waits_and_who_does_not(
    program: Make, numbers: torch.Tensor
) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        if (threadIdx.x >= n) return;
        y[threadIdx.x] += 1;
        __syncthreads();  // here
        y[threadIdx.x] += 1;
    }""")
    fault = p.fault(numbers, 50, block=64)
    assert (fault.kind, fault.line) == ("barrier", p.line("here"))
    assert "(0,0,0)…(49,0,0) (50 threads): at __syncthreads" in str(fault)
    assert "(50,0,0)…(63,0,0) (14 threads): returned" in str(fault)
    assert p.fault(numbers, 50, block=64, mode="fast").kind == "barrier"


def test_different_barriers_of_one_block(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        if (threadIdx.x < 32) {
            y[threadIdx.x] += 1;
            __syncthreads();  // one
        } else {
            y[threadIdx.x] += 2;
            __syncthreads();  // two
        }
    }""")
    fault = p.fault(numbers, 64, block=64)
    assert (fault.kind, fault.line, fault.other_line) == ("barrier", p.line("two"), p.line("one"))


def test_shuffle_that_not_all_named_lanes_reach(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        float v = y[threadIdx.x];
        if (threadIdx.x < 16)
            v += __shfl_down_sync(0xffffffff, v, 8);  // here
        __syncthreads();
        y[threadIdx.x] = v;
    }""")
    fault = p.fault(numbers, 64)
    assert (fault.kind, fault.line) == ("barrier", p.line("here"))
    assert "__shfl_down_sync" in str(fault)


def test_shuffle_that_reads_a_lane_which_has_returned(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        if (threadIdx.x >= n) return;
        y[threadIdx.x] += __shfl_xor_sync(0xffffffff, y[threadIdx.x], 16);  // here
    }""")
    fault = p.fault(numbers, 20)
    assert (fault.kind, fault.line) == ("barrier", p.line("here"))
    assert "lane 4 reads lane 20" in str(fault)


def test_mask_that_does_not_name_the_caller(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        __syncwarp(0x0000ffff);  // here
        y[threadIdx.x] = 0;
    }""")
    fault = p.fault(numbers, 64)
    assert (fault.kind, fault.line, fault.thread) == ("barrier", p.line("here"), (16, 0, 0))


def test_uninitialised_shared_memory(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        __shared__ float tile[32];
        if (threadIdx.x < 20) tile[threadIdx.x] = 1;
        __syncthreads();
        y[threadIdx.x] = tile[threadIdx.x];  // here
    }""")
    fault = p.fault(numbers, 64)
    assert (fault.kind, fault.line) == ("uninitialised", p.line("here"))
    assert fault.thread == (20, 0, 0)


def test_output_that_is_read_before_it_is_written(program: Make, numbers: torch.Tensor) -> None:
    p = program(
        """extern "C" __global__ void f(float* y, const float* x, int64_t n) {
        y[threadIdx.x] += x[threadIdx.x];  // here
    }""",
        ["y"],
    )
    fault = p.fault(torch.zeros(32), numbers, 32)
    assert (fault.kind, fault.line) == ("uninitialised", p.line("here"))


def test_output_that_is_never_written(program: Make, numbers: torch.Tensor) -> None:
    p = program(
        """extern "C" __global__ void f(float* y, const float* x, int64_t n) {
        if (threadIdx.x < n / 4 * 4) y[threadIdx.x] = x[threadIdx.x];
    }""",
        ["y"],
    )
    fault = p.fault(torch.zeros(30), numbers, 30)
    assert (fault.kind, fault.block, fault.thread) == ("unwritten", None, None)
    assert "y[28:30]" in str(fault)


def test_write_to_an_input(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, const float* x, int64_t n) {
        const_cast<float*>(x)[threadIdx.x] = y[threadIdx.x];  // here
    }""")
    fault = p.fault(numbers, numbers.clone(), 64)
    assert (fault.kind, fault.line) == ("read_only", p.line("here"))


def test_device_assertion(program: Make, numbers: torch.Tensor) -> None:
    p = program("""#include <cassert>
    extern "C" __global__ void f(float* y, int64_t n) {
        assert(y[threadIdx.x] < 7);  // here
    }""")
    fault = p.fault(numbers, 64)
    assert (fault.kind, fault.line, fault.thread) == ("assert", p.line("here"), (7, 0, 0))
    assert "y[simt_thread_index" in str(fault) or "y[threadIdx.x] < 7" in str(fault)


@pytest.mark.parametrize("mode", ["fast", "checked"])
def test_wild_pointer_ends_the_launch_and_not_the_process(
    program: Make, numbers: torch.Tensor, mode: str
) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        if (threadIdx.x == 5) *(volatile int*)(n * 8) = 1;  // here
    }""")
    fault = p.fault(numbers, 2, mode=mode)
    assert (fault.kind, fault.line, fault.thread) == ("out_of_bounds", p.line("here"), (5, 0, 0))
    p.fault(numbers, 2, mode=mode)


def test_endless_recursion_is_a_fault(program: Make, numbers: torch.Tensor) -> None:
    p = program("""__device__ __attribute__((noinline)) int deep(volatile int* x) {
        volatile int here[64];
        here[0] = x[0] + 1;
        return deep(here) + here[0];
    }
    extern "C" __global__ void f(float* y, int64_t n) {
        volatile int start[1] = {0};
        y[0] = deep(start);
    }""")
    assert "local memory" in str(p.fault(numbers, 2, mode="fast"))
