"""Fences with atomics put threads in order, and nothing weaker does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.kernels.conftest import Program

Make = Callable[..., Program]

# Every block leaves a sum; the last one to take a ticket adds all of them.
LAST_BLOCK = """__device__ float part[64];
__device__ unsigned ticket;
extern "C" __global__ void f(float* y, int64_t n) {
    __shared__ bool last;
    part[blockIdx.x * 4 + threadIdx.x] = y[blockIdx.x * 4 + threadIdx.x];  // write
    %s
    __syncthreads();
    if (threadIdx.x == 0) {
        %s
        last = %s == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    float sum = 0;
    for (unsigned i = 0; i < 4 * gridDim.x; i++) sum += part[i];  // read
    __syncthreads();
    y[threadIdx.x] = sum;
    if (threadIdx.x == 0) ticket = 0;
}"""
WRAPS = "atomicInc(&ticket, gridDim.x - 1)"


@pytest.mark.parametrize(
    ("each", "one"),
    [("__threadfence();", ""), ("", "__threadfence();"), ("__threadfence();", "__threadfence();")],
)
@pytest.mark.parametrize("take", [WRAPS, "atomicAdd(&ticket, 1u)"])
def test_last_block_by_a_ticket_in_a_device_variable(
    program: Make, numbers: torch.Tensor, each: str, one: str, take: str
) -> None:
    p = program(LAST_BLOCK % (each, one, take))
    for mode in ("checked", "fast", "checked"):
        y = numbers.clone()
        p.run(y, 64, grid=16, block=4, mode=mode)
        assert y[:4].tolist() == [float(sum(range(64)))] * 4


@pytest.mark.parametrize(
    ("each", "one"),
    [("", ""), ("__threadfence_block();", ""), ("", "__threadfence_block();")],
)
def test_ticket_without_a_fence_of_the_grid(
    program: Make, numbers: torch.Tensor, each: str, one: str
) -> None:
    p = program(LAST_BLOCK % (each, one, WRAPS))
    fault = p.fault(numbers, 64, grid=16, block=4)
    assert (fault.kind, fault.line, fault.other_line) == ("race", p.line("read"), p.line("write"))
    assert "part (byte 0), which this thread reads" in str(fault)
    assert "no __threadfence() with an atomic after it" in str(fault)


def test_fence_that_comes_before_the_writes(program: Make, numbers: torch.Tensor) -> None:
    text = LAST_BLOCK % ("", "", WRAPS)
    p = program(text.replace("    part[blockIdx", "    __threadfence();\n    part[blockIdx", 1))
    assert p.fault(numbers, 64, grid=16, block=4).kind == "race"


def test_fence_and_an_atomic_elsewhere_are_no_order(program: Make, numbers: torch.Tensor) -> None:
    p = program("""__device__ int of_block[64];
    extern "C" __global__ void f(float* y, int64_t n) {
        y[blockIdx.x] = blockIdx.x;  // write
        __threadfence();
        atomicAdd(&of_block[blockIdx.x], 1);
        if (blockIdx.x > 0) y[blockIdx.x] += y[blockIdx.x - 1];  // read
    }""")
    fault = p.fault(numbers, 64, grid=4, block=1)
    assert (fault.kind, fault.line, fault.other_line) == ("race", p.line("read"), p.line("write"))


def test_each_thread_takes_a_ticket_of_its_own(program: Make, numbers: torch.Tensor) -> None:
    p = program("""__device__ int ticket;
    __device__ float part[64];
    extern "C" __global__ void f(float* y, int64_t n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        part[i] = y[i];
        %s
        if (atomicAdd(&ticket, 1) < n - 1) return;
        float sum = 0;
        for (int i = 0; i < n; i++) sum += part[i];
        y[0] = sum;
        ticket = 0;
    }""")
    p.text = p.text % "__threadfence();"
    p.path.write_text(p.text)
    p.run(numbers, 64, grid=2, block=32)
    assert numbers[0] == sum(range(64))
    p = program(p.text.replace("__threadfence();", ""))
    assert p.fault(numbers, 64, grid=2, block=32).kind == "race"


LOCK = """__device__ int lock, sum;
extern "C" __global__ void f(int* y, int64_t n) {
    while (atomicCAS(&lock, 0, 1) != 0) {}
    %s
    y[0] += threadIdx.x + 1;  // here
    %s
    atomicExch(&lock, 0);
}"""


def test_lock_with_fences_orders_blocks_and_threads(program: Make) -> None:
    y = torch.zeros(1, dtype=torch.int32)
    program(LOCK % ("__threadfence();", "__threadfence();")).run(y, 1, grid=3, block=64)
    assert y[0] == 3 * 64 * 65 // 2


def test_lock_without_a_fence(program: Make) -> None:
    y = torch.zeros(1, dtype=torch.int32)
    p = program(LOCK % ("", ""))
    fault = p.fault(y, 1, grid=3, block=64)
    assert (fault.kind, fault.line, fault.thread) == ("race", p.line("here"), (1, 0, 0))


def test_lock_in_shared_memory_needs_the_block_s_fence(program: Make) -> None:
    text = """extern "C" __global__ void f(int* y, int64_t n) {
        __shared__ int lock, sum;
        if (threadIdx.x == 0) lock = sum = 0;
        __syncthreads();
        while (atomicCAS(&lock, 0, 1) != 0) {}
        sum += threadIdx.x + 1;  // here
        FENCE
        atomicExch(&lock, 0);
        __syncthreads();
        y[blockIdx.x] = sum;
    }"""
    y = torch.zeros(2, dtype=torch.int32)
    program(text.replace("FENCE", "__threadfence_block();")).run(y, 2, grid=2, block=64)
    assert y.tolist() == [64 * 65 // 2] * 2
    p = program(text.replace("FENCE", ""))
    fault = p.fault(y, 2, grid=2, block=64)
    assert (fault.kind, fault.line) == ("race", p.line("here"))


# Each block waits for the one before it and adds to what that one left.
CHAIN = """__device__ int ready[8];
extern "C" __global__ void f(float* y, int64_t n) {
    int b = blockIdx.x;
    if (b > 0) while (*(volatile int*)&ready[b - 1] == 0) {}
    if (b > 0) y[b] += y[b - 1];  // read
    FENCE
    *(volatile int*)&ready[b] = 1;
}"""


def test_chain_of_volatile_flags(program: Make, numbers: torch.Tensor) -> None:
    program(CHAIN.replace("FENCE", "__threadfence();")).run(numbers, 64, grid=8, block=1)
    assert numbers[7] == sum(range(8))


def test_chain_of_volatile_flags_without_a_fence(program: Make, numbers: torch.Tensor) -> None:
    assert program(CHAIN.replace("FENCE", "")).fault(numbers, 64, grid=8, block=1).kind == "race"


def test_what_is_learnt_through_two_flags_is_known(program: Make, numbers: torch.Tensor) -> None:
    text = """__device__ int first, second;
    extern "C" __global__ void f(float* y, int64_t n) {
        if (blockIdx.x == 0) {
            y[0] = 5;
            __threadfence();
            atomicExch(&first, 1);
        } else if (blockIdx.x == 1) {
            while (atomicAdd(&first, 0) == 0) {}
            FENCE
            atomicExch(&second, 1);
        } else {
            while (atomicAdd(&second, 0) == 0) {}
            y[2] = y[0];
        }
    }"""
    program(text.replace("FENCE", "__threadfence();")).run(numbers, 64, grid=3, block=1)
    assert numbers[2] == 5
    p = program(text.replace("FENCE", "if (n == 0) __threadfence();"))
    assert p.fault(numbers, 64, grid=3, block=1).kind == "race"


def test_volatile_shared_memory_of_a_warp_still_needs_syncwarp(
    program: Make, numbers: torch.Tensor
) -> None:
    text = """extern "C" __global__ void f(float* y, int64_t n) {
        __shared__ float tile[32];
        volatile float* s = tile;
        s[threadIdx.x] = y[threadIdx.x];
        __syncwarp();
        if (threadIdx.x < 16) s[threadIdx.x] += s[threadIdx.x + 16];
        SYNC
        if (threadIdx.x < 8) s[threadIdx.x] += s[threadIdx.x + 8];
        __syncwarp();
        y[threadIdx.x] = s[0];
    }"""
    program(text.replace("SYNC", "__syncwarp();")).run(numbers.clone(), 64)
    assert program(text.replace("SYNC", "")).fault(numbers, 64).kind == "race"


@pytest.mark.parametrize("mode", ["fast", "checked"])
def test_active_lanes_of_a_branch(program: Make, mode: str) -> None:
    y = torch.zeros(64, dtype=torch.int32)
    p = program("""extern "C" __global__ void f(int* y, int64_t n) {
        int t = threadIdx.x;
        if (t % 3 == 0) {
            unsigned mask = __activemask();
            int leader = __ffs(mask) - 1;
            y[t] = __shfl_sync(mask, t, leader) + __popc(mask);
        } else {
            y[t] = __popc(__activemask());
        }
    }""")
    p.run(y, 64, block=64, mode=mode)
    assert y[0] == 11 and y[3] == 11 and y[1] == 21
    assert y[33] == 33 + 11 and y[34] == 21


def test_sleeping_threads_let_others_run(program: Make) -> None:
    y = torch.zeros(1, dtype=torch.int32)
    p = program("""extern "C" __global__ void f(int* y, int64_t n) {
        __shared__ int flag;
        if (threadIdx.x == 0) flag = 0;
        __syncthreads();
        if (threadIdx.x == 0) {
            while (atomicAdd(&flag, 0) == 0) __nanosleep(100);
            y[0] = 7;
        } else if (threadIdx.x == 33) {
            atomicExch(&flag, 1);
        }
    }""")
    p.run(y, 1, block=64)
    assert y[0] == 7


def test_local_variable_that_is_never_set(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        float sum;
        for (int i = 0; i < n; i++) sum += y[i];
        y[threadIdx.x] = sum;
    }""")
    p.run(numbers, 64, block=1)
    assert not numbers[0].abs() < 1e38  # a huge number, or none


def test_double_buffer_of_volatile_words_needs_no_fence(program: Make) -> None:
    y = torch.zeros(16, dtype=torch.int32)
    p = program("""__device__ volatile unsigned long long state[16];
    extern "C" __global__ void f(int* y, int64_t n) {
        int b = blockIdx.x;
        unsigned long long before = 0;
        if (b > 0) while (((before = state[b - 1]) >> 32) == 0) {}
        unsigned mine = (unsigned)before + b;
        state[b] = (1ull << 32) | mine;
        y[b] = mine;
    }""")
    p.run(y, 16, grid=16, block=1)
    assert y[15] == sum(range(16))
