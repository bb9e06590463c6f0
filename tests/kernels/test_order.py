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
