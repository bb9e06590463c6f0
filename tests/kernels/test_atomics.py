"""Atomics: what only looks like one, loops around atomicCAS, and who else reads and adds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.kernels.conftest import Program

Make = Callable[..., Program]

# What looks like an atomic change and is two steps.
TORN = {
    "counter": """__device__ int count;
    extern "C" __global__ void f(float* y, int64_t n) {
        __threadfence();
        volatile int* c = &count;
        *c = *c + 1;  // here
    }""",
    "ticket": """__device__ unsigned count;
    extern "C" __global__ void f(float* y, int64_t n) {
        if (threadIdx.x != 0) return;
        y[blockIdx.x] = 1;
        __threadfence();
        volatile unsigned* t = &count;
        unsigned mine = *t;
        *t = mine + 1;  // here
        if (mine == gridDim.x - 1) y[63] = 1;
    }""",
    "lock": """__device__ int lock;
    extern "C" __global__ void f(float* y, int64_t n) {
        __threadfence();
        volatile int* l = &lock;
        while (*l != 0) {}
        *l = 1;  // here
        __threadfence();
        y[0] += 1;
        __threadfence();
        *l = 0;
    }""",
    "values": """extern "C" __global__ void f(float* y, int64_t n) {
        __threadfence();
        ((volatile float*)y)[0] = threadIdx.x + 32 * blockIdx.x;  // here
    }""",
}


@pytest.mark.parametrize("name", TORN)
def test_volatile_changes_are_not_atomic(program: Make, numbers: torch.Tensor, name: str) -> None:
    p = program(TORN[name])
    fault = p.fault(numbers, 64, grid=3, block=64)
    assert (fault.kind, fault.line) == ("race", p.line("here"))


@pytest.mark.parametrize("blocks", [3, 16])
def test_readers_of_other_blocks_are_remembered(program: Make, blocks: int) -> None:
    y = torch.zeros(128)
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        float v = y[5];  // read
        __syncthreads();
        if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) y[5] = 100;  // here
        y[8 + blockIdx.x * 4 + threadIdx.x] = v;
    }""")
    fault = p.fault(y, 128, grid=blocks, block=4)
    assert (fault.kind, fault.line, fault.other_line) == ("race", p.line("here"), p.line("read"))


def test_last_block_by_its_number_reads_what_others_still_add_to(
    program: Make, numbers: torch.Tensor
) -> None:
    p = program("""__device__ float total;
    extern "C" __global__ void f(float* y, int64_t n) {
        atomicAdd(&total, y[blockIdx.x * 4 + threadIdx.x]);  // add
        __syncthreads();
        if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) y[63] = total;  // here
    }""")
    fault = p.fault(numbers, 64, grid=8, block=4)
    assert (fault.kind, fault.line, fault.other_line) == ("race", p.line("here"), p.line("add"))


def test_many_fences_hide_no_race_in_shared_memory(program: Make) -> None:
    y = torch.zeros(512, dtype=torch.int32)
    p = program("""extern "C" __global__ void f(int* y, int64_t n) {
        __shared__ int s[256];
        for (int i = 0; i < 20; i++) {
            __threadfence();
            atomicAdd(&y[threadIdx.x], 1);
        }
        s[threadIdx.x] = threadIdx.x;
        __syncthreads();
        s[threadIdx.x] += 1;  // add
        if (blockIdx.x == gridDim.x - 1) y[256 + threadIdx.x] = s[255 - threadIdx.x];  // here
    }""")
    fault = p.fault(y, 512, grid=1024, block=256)
    assert fault.kind == "race"
    assert {fault.line, fault.other_line} == {p.line("add"), p.line("here")}


# From the programming guide: an addition of doubles, and one of integers after a plain guess.
LOOPS = {
    "double": """__device__ double sum;
    __device__ double add(double* address, double value) {
        unsigned long long* as = (unsigned long long*)address;
        unsigned long long old = *as, assumed;
        do {
            assumed = old;
            old = atomicCAS(as, assumed,
                            __double_as_longlong(value + __longlong_as_double(assumed)));
        } while (assumed != old);
        return __longlong_as_double(old);
    }
    extern "C" __global__ void f(int* y, int64_t n) {
        add(&sum, 1.0);
        __threadfence();
        if (atomicAdd(&y[1], 1) == gridDim.x * blockDim.x - 1) { y[0] = (int)sum; sum = 0; }
    }""",
    "int": """extern "C" __global__ void f(int* y, int64_t n) {
        int old = y[0], seen;
        do {
            seen = old;
            old = atomicCAS(&y[0], seen, seen + 1);
        } while (old != seen);
    }""",
    "maximum": """extern "C" __global__ void f(int* y, int64_t n) {
        int mine = blockIdx.x * blockDim.x + threadIdx.x + 1, old = *(volatile int*)y;
        while (old < mine) {
            int found = atomicCAS(y, old, mine);
            if (found == old) break;
            old = found;
        }
    }""",
    "shared": """extern "C" __global__ void f(int* y, int64_t n) {
        __shared__ int count;
        if (threadIdx.x == 0) count = 0;
        __syncthreads();
        int old = count, seen;
        do {
            seen = old;
            old = atomicCAS(&count, seen, seen + 1);
        } while (old != seen);
        __syncthreads();
        if (threadIdx.x == 0) atomicAdd(y, count);
    }""",
}


@pytest.mark.parametrize("mode", ["checked", "fast"])
@pytest.mark.parametrize("name", LOOPS)
def test_loops_around_compare_and_swap(program: Make, name: str, mode: str) -> None:
    y = torch.zeros(2, dtype=torch.int32)
    p = program(LOOPS[name])
    for order in (0, 1, 2):
        y.zero_()
        p.file.launch("f", [y, 2], grid=3, block=64, mode=mode, order=order)
        assert y[0] == 192


def test_plain_guess_without_compare_and_swap(program: Make, numbers: torch.Tensor) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        float seen = y[0];  // here
        atomicAdd(&y[0], seen + 1);  // add
    }""")
    fault = p.fault(numbers, 64, block=64)
    assert fault.kind == "race"
    assert {fault.line, fault.other_line} == {p.line("here"), p.line("add")}


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("place", ["__device__", "shared"])
@pytest.mark.parametrize("set_by", ["*(volatile int*)&flag = 1", "atomicExch((int*)&flag, 1)"])
def test_flag_that_a_thread_waits_for(
    program: Make, numbers: torch.Tensor, place: str, set_by: str, order: int
) -> None:
    shared = place == "shared"
    p = program(
        ("" if shared else "__device__ int flag;\n")
        + 'extern "C" __global__ void f(float* y, int64_t n) {\n'
        + ("__shared__ int flag;\n" if shared else "")
        + f"""if (threadIdx.x == 5) flag = 0;
        __syncthreads();
        if (threadIdx.x == 0) {{
            while (*(volatile int*)&flag == 0) {{}}
            __threadfence_block();
            y[2] = y[1];
        }}
        if (threadIdx.x == 32) {{
            y[1] = 50;
            __threadfence_block();
            {set_by};
        }}
    }}"""
    )
    p.file.launch("f", [numbers, 64], grid=1, block=64, mode="checked", order=order)
    assert numbers[2] == 50


@pytest.mark.parametrize("lane", [0, 31])
def test_ticket_of_any_lane_after_syncwarp(program: Make, numbers: torch.Tensor, lane: int) -> None:
    p = program(f"""__device__ float part[64];
    __device__ unsigned ticket;
    extern "C" __global__ void f(float* y, int64_t n) {{
        __shared__ unsigned t;
        int i = blockIdx.x * 32 + threadIdx.x;
        part[i] = y[i];
        __threadfence();
        __syncwarp();
        if (threadIdx.x == {lane}) t = atomicAdd(&ticket, 1u);
        __syncthreads();
        if (t != gridDim.x - 1) return;
        float sum = 0;
        for (int k = 0; k < 64; k++) sum += part[k];
        __syncthreads();
        y[threadIdx.x] = sum;
    }}""")
    p.run(numbers, 64, grid=2)
    assert numbers[0] == sum(range(64))


def test_fences_at_many_places_need_little_memory(program: Make) -> None:
    import resource

    y = torch.zeros(1 << 18, dtype=torch.int32)
    p = program("""extern "C" __global__ void f(int* y, int64_t n) {
        __threadfence();
        atomicAdd(&y[blockIdx.x * blockDim.x + threadIdx.x], 1);
    }""")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    p.run(y, 1 << 18, grid=1024, block=256)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert int(y.sum()) == 1 << 18
    assert after - before < 160 << 10  # KiB
