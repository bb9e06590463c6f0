"""What of CUDA a kernels.cu may use when it is built for the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.kernels.conftest import Program

Make = Callable[..., Program]
MODES = pytest.mark.parametrize("mode", ["fast", "checked"])


@MODES
def test_three_dimensional_grids_and_blocks(program: Make, mode: str) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        int i = block * blockDim.x * blockDim.y * blockDim.z + thread;
        if (i < n) y[i] = i + 0.5f * warpSize;
    }""")
    y = torch.zeros(2 * 3 * 4 * 5 * 3 * 2)
    p.run(y, y.numel(), grid=(2, 3, 4), block=(5, 3, 2), mode=mode)
    assert torch.equal(y, torch.arange(y.numel()) + 16.0)


@MODES
def test_barriers_that_count_and_vote(program: Make, mode: str) -> None:
    p = program("""extern "C" __global__ void f(int* y, int64_t n) {
        int t = threadIdx.x;
        int count = __syncthreads_count(t < n);
        int all = __syncthreads_and(t < 1000);
        int any = __syncthreads_or(t == 99);
        y[t] = count * 100 + all * 10 + any;
    }""")
    y = torch.zeros(96, dtype=torch.int32)
    p.run(y, 37, block=96, mode=mode)
    assert y.unique().tolist() == [3710]


@MODES
def test_barriers_of_long_loops_suspend_every_thread(program: Make, mode: str) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        __shared__ float ring[1024];
        int t = threadIdx.x;
        float local[8];
        for (int i = 0; i < 8; i++) local[i] = i * t;
        ring[t] = t;
        for (int step = 0; step < n; step++) {
            __syncthreads();
            float next = ring[(t + 1) % blockDim.x];
            __syncthreads();
            ring[t] = next;
        }
        y[t] = ring[t] + local[t % 8] * 0;
    }""")
    y = torch.zeros(1024)
    p.run(y, 30, block=1024, mode=mode)
    assert torch.equal(y, (torch.arange(1024.0) + 30) % 1024)


SHUFFLES = """extern "C" __global__ void f(int* y, int64_t n) {
    int lane = threadIdx.x, v = 100 + lane;
    const unsigned all = 0xffffffffu;
    y[0 * 32 + lane] = __shfl_sync(all, v, 5);
    y[1 * 32 + lane] = __shfl_sync(all, v, 3, 8);
    y[2 * 32 + lane] = __shfl_up_sync(all, v, 2);
    y[3 * 32 + lane] = __shfl_up_sync(all, v, 1, 16);
    y[4 * 32 + lane] = __shfl_down_sync(all, v, 3);
    y[5 * 32 + lane] = __shfl_down_sync(all, v, 1, 4);
    y[6 * 32 + lane] = __shfl_xor_sync(all, v, 1);
    y[7 * 32 + lane] = __shfl_xor_sync(all, v, 16);
    double d = __shfl_xor_sync(all, v + 0.25, 2);
    y[8 * 32 + lane] = (int)(d * 4);
    __nv_bfloat162 pair = __shfl_down_sync(all, __floats2bfloat162_rn(lane, -lane), 1);
    y[9 * 32 + lane] = (int)__low2float(pair) * 1000 + (int)__high2float(pair);
}"""


@MODES
def test_shuffles_with_widths_and_types(program: Make, mode: str) -> None:
    y = torch.zeros(10, 32, dtype=torch.int32)
    program(SHUFFLES).run(y, 0, mode=mode)
    lanes = range(32)
    next_lane = [lane + 1 if lane < 31 else lane for lane in lanes]
    assert y.tolist() == [
        [105] * 32,
        [100 + lane // 8 * 8 + 3 for lane in lanes],
        [100 + (lane - 2 if lane >= 2 else lane) for lane in lanes],
        [100 + (lane - 1 if lane % 16 else lane) for lane in lanes],
        [100 + (lane + 3 if lane < 29 else lane) for lane in lanes],
        [100 + (lane + 1 if lane % 4 < 3 else lane) for lane in lanes],
        [100 + (lane ^ 1) for lane in lanes],
        [100 + (lane ^ 16) for lane in lanes],
        [401 + (lane ^ 2) * 4 for lane in lanes],
        [lane * 1000 - lane for lane in next_lane],
    ]


VOTES = """extern "C" __global__ void f(int* y, int64_t n) {
    int lane = threadIdx.x % 32;
    unsigned mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    y += threadIdx.x * 10;
    y[0] = (int)__ballot_sync(mask, lane % 3 == 0);
    y[1] = __any_sync(mask, lane == 20);
    y[2] = __all_sync(mask, lane >= 16);
    y[3] = __reduce_add_sync(mask, lane);
    y[4] = __reduce_min_sync(mask, -lane);
    y[5] = (int)__reduce_max_sync(mask, (unsigned)lane);
    y[6] = (int)__reduce_and_sync(mask, (unsigned)lane | 64u);
    y[7] = (int)__reduce_or_sync(mask, 1u << lane);
    y[8] = (int)__reduce_xor_sync(mask, (unsigned)lane);
    y[9] = (int)__match_any_sync(mask, lane % 4);
}"""


@MODES
def test_votes_and_reductions_of_half_warps(program: Make, mode: str) -> None:
    y = torch.zeros(64, 10, dtype=torch.int32)
    program(VOTES).run(y, 0, block=64, mode=mode)
    threes = [
        sum(1 << lane for lane in half if lane % 3 == 0) for half in (range(16), range(16, 32))
    ]
    assert y[0, :9].tolist() == [threes[0], 0, 0, 120, -15, 15, 64, 0xFFFF, 0]
    assert y[16, 1:6].tolist() == [1, 1, 376, -31, 31]
    assert y[16, 0].item() & 0xFFFFFFFF == threes[1]
    assert y[5, 9].item() == sum(1 << lane for lane in range(16) if lane % 4 == 1)
    assert torch.equal(y[:32], y[32:])


ATOMICS = """extern "C" __global__ void f(int* y, float* z, int64_t n) {
    __shared__ int count;
    __shared__ float sum;
    if (threadIdx.x == 0) { count = 0; sum = 0; }
    __syncthreads();
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&count, 1);
    atomicAdd(&sum, 0.5f);
    atomicMax(&y[1], t);
    atomicMin(&y[2], -t);
    atomicOr((unsigned*)&y[3], 1u << (t % 32));
    atomicSub(&y[4], 2);
    int old = y[5 + t];
    while (atomicCAS(&y[5 + t], old, old + 7) != old) {}
    atomicExch(&z[1], 2.0f);
    __syncthreads();
    if (threadIdx.x == 0) { atomicAdd(&y[0], count); atomicAdd(&z[0], sum); }
}"""


@MODES
def test_atomics_in_global_and_shared_memory(program: Make, mode: str) -> None:
    y, z = torch.zeros(5 + 192, dtype=torch.int32), torch.zeros(2)
    program(ATOMICS).run(y, z, 0, grid=2, block=96, mode=mode)
    assert y[:5].tolist() == [192, 191, -191, -1, -384]
    assert y[5:].unique().tolist() == [7]
    assert z.tolist() == [96, 2]


@MODES
def test_threads_that_spin_on_a_lock_let_others_run(program: Make, mode: str) -> None:
    p = program("""extern "C" __global__ void f(int* lock, float* sum, int64_t n) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        atomicAdd(sum, 1.0f);
        __threadfence();
        atomicExch(lock, 0);
    }""")
    total = torch.zeros(1)
    p.run(torch.zeros(1, dtype=torch.int32), total, 0, grid=2, block=64, mode=mode)
    assert total.item() == 128


@pytest.mark.parametrize("type_name", ["__nv_bfloat16", "__half"])
def test_small_floats_round_as_torch_does(program: Make, type_name: str) -> None:
    dtype = torch.bfloat16 if type_name == "__nv_bfloat16" else torch.float16
    p = program(f"""extern "C" __global__ void f(float* y, const float* x, int64_t n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) {{ {type_name} small = {type_name}(x[i]); y[i] = (float)small; }}
    }}""")
    bits = torch.arange(-(1 << 31), 1 << 31, 131071, dtype=torch.int64).to(torch.int32)
    x = bits.view(torch.float32)
    x = x[~x.isnan()].contiguous()
    y = torch.zeros_like(x)
    p.run(y, x, x.numel(), grid=-(-x.numel() // 256), block=256, mode="fast")
    assert torch.equal(y, x.to(dtype).float())


def test_arithmetic_of_small_floats_and_pairs(program: Make) -> None:
    p = program("""template <typename P, typename S>
    __device__ void all(float* y, P pair, S one) {
        P sum = pair + pair * pair;
        sum += __hfma2(pair, pair, pair);
        y[0] = __low2float(sum);
        y[1] = __high2float(sum);
        y[2] = (float)(one / (one + one)) + (float)__hmul(one, one) - (float)-one;
        y[3] = (one < one + one) + (one == one) * 10;
        y[4] = (float)__hmax(one, one + one);
    }
    extern "C" __global__ void f(float* y, int64_t n) {
        all(y, __floats2bfloat162_rn(1, 2), __float2bfloat16(1.0f));
        all(y + 5, __floats2half2_rn(1, 2), __float2half(1.0f));
    }""")
    y = torch.zeros(10)
    p.run(y, 0, block=1)
    assert y.tolist() == [4, 12, 2.5, 11, 2] * 2


def test_device_functions_constants_and_fast_math(program: Make) -> None:
    p = program("""#include <math_constants.h>
    __constant__ float table[4] = {1, 2, 3, 4};
    __device__ __forceinline__ float twice(float x) { return 2 * x; }
    template <int N> __global__ void __launch_bounds__(256) helper(float*) {}
    extern "C" __global__ void f(float* __restrict__ y, int64_t n) {
        float sum = 0;
        #pragma unroll
        for (int i = 0; i < 4; i++) sum += twice(__ldg(&table[i]));
        y[0] = sum;
        y[1] = __expf(0.0f) + rsqrtf(4.0f) + __fdividef(1.0f, 2.0f) + fmaxf(-CUDART_INF_F, 1.0f);
        y[2] = max(3, 2) + min(2.5f, 1.0f) + __popc(0xffu) + __ffs(8) + __clz(1);
        y[3] = __int_as_float(__float_as_int(1.5f)) + __fmaf_rn(2.0f, 3.0f, 1.0f);
        int4 a = make_int4(1, 2, 3, 4);
        float2 b = make_float2(0.5f, 0.25f);
        y[4] = a.x + a.w + b.y;
        dim3 d(2, 3);
        y[5] = d.x * 100 + d.y * 10 + d.z;
    }""")
    y = torch.zeros(6)
    p.run(y, 0, block=1)
    assert y.tolist() == [20, 3, 3 + 1 + 8 + 4 + 31, 8.5, 5.25, 231]


def test_printf_of_a_kernel_is_seen(program: Make, capfd: pytest.CaptureFixture[str]) -> None:
    p = program("""extern "C" __global__ void f(float* y, int64_t n) {
        if (threadIdx.x == 3) printf("thread %d has %.1f\\n", (int)threadIdx.x, y[3]);
        y[threadIdx.x] = 0;
    }""")
    p.run(torch.full((32,), 2.5), 32)
    import ctypes

    ctypes.CDLL(None).fflush(None)
    assert "thread 3 has 2.5" in capfd.readouterr().out


def test_several_names_of_dynamic_shared_memory(program: Make) -> None:
    p = program("""template <typename T> __device__ T swap(T x) {
        extern __shared__ __align__(16) unsigned char raw[];
        T* s = reinterpret_cast<T*>(raw);
        s[threadIdx.x] = x;
        __syncthreads();
        T y = s[blockDim.x - 1 - threadIdx.x];
        __syncthreads();
        return y;
    }
    extern "C" __global__ void f(float* y, int64_t n) {
        extern __shared__ float other[];
        float v = swap<float>(threadIdx.x);
        double w = swap<double>(threadIdx.x);
        other[threadIdx.x] = v + (float)w;
        __syncthreads();
        y[threadIdx.x] = other[threadIdx.x];
    }""")
    y = torch.zeros(64)
    p.run(y, 64, block=64, shared_bytes=64 * 8)
    assert torch.equal(y, 2 * (63 - torch.arange(64.0)))
