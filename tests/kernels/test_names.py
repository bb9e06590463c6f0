"""Names of CUDA's that a kernels.cu may use on the CPU, and what they come to there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernels.library import Mode
from tests.kernels.conftest import Program

Make = Callable[..., Program]
KERNEL = 'extern "C" __global__ void f(float* y, int64_t n) {\n%s\n}'
MODES = pytest.mark.parametrize("mode", ["fast", "checked"])


def _values(program: Make, before: str, *expressions: str) -> list[float]:
    lines = [f"y[{i}] = {expression};" for i, expression in enumerate(expressions)]
    y = torch.zeros(len(expressions))
    program("#include <memory>\n" + before + KERNEL % "\n".join(lines)).run(y, y.numel(), block=1)
    return y.tolist()


def test_functions_that_are_not_inlined(program: Make) -> None:
    twice = "__device__ __noinline__ float twice(float x) { return 2 * x; }\n"
    more = "__noinline__ __device__ static float more(float x) { return x + 1; }\n"
    three = "__device__ __forceinline__ float three() { return 3; }\n"
    assert _values(program, twice + more + three, "twice(more(three()))") == [8]


def test_bits_and_products(program: Make) -> None:
    assert _values(
        program,
        "",
        "__byte_perm(0x33221100u, 0x77665544u, 0x7410u) == 0x77441100u",
        "__mulhi(-(1 << 20), 1 << 20)",
        "__umulhi(0xffffffffu, 2u)",
        "__umul24(0x01000003u, 5u)",
        "__mul24(0x00ffffff, 3)",
        "__funnelshift_l(0x80000000u, 1u, 1u)",
        "__funnelshift_r(0u, 3u, 31u)",
        "__funnelshift_rc(0u, 3u, 40u)",
    ) == [1, -256, 1, 15, -3, 3, 6, 3]


def test_conversions_round_and_clamp(program: Make) -> None:
    assert _values(
        program,
        "",
        "__float2uint_rn(2.5f) + __float2uint_rn(-3.0f)",
        "__float2int_rn(3.5f) + __float2int_rd(-0.5f)",
        "__float2int_rz(-3.5f) * 10 + __float2int_ru(0.25f)",
        "__float2int_rn(1e20f) == 2147483647 && __float2int_rn(-1e20f) == -2147483647 - 1",
        '__float2int_rn(nanf(""))',
        "__uint2float_rn(3000000000u)",
        "__ll2float_rn(-5LL) + __ull2float_rn(7ULL) + __double2float_rn(0.5)",
        "__float2ull_rn(1e30f) == ~0ull && __float2ll_rn(8.0f) == 8",
    ) == [2, 3, -29, 1, 0, 3e9, 2.5, 1]


@pytest.mark.parametrize(
    ("small", "pair", "make", "floats"),
    [
        ("__nv_bfloat16", "__nv_bfloat162", "make_bfloat162", "__floats2bfloat162_rn"),
        ("__half", "__half2", "make_half2", "__floats2half2_rn"),
    ],
)
def test_comparisons_and_pairs_of_small_floats(
    program: Make, small: str, pair: str, make: str, floats: str
) -> None:
    before = f"#define S(x) {small}(x)\n#define P(x, y) {floats}(x, y)\n"
    assert _values(
        program,
        before,
        "__hge(S(2), S(2)) + 2 * __hle(S(3), S(2)) + 4 * __hne(S(1), S(2))",
        '__hne(S(nanf("")), S(1)) + __hge(S(1), S(nanf("")))',
        "__low2float(__hneg2(P(1, 2))) + __high2float(__habs2(P(1, -4)))",
        "__low2float(h2exp(P(0, 0)))",
        f"__low2float({make}(S(3), S(4))) + 10 * __high2float({make}(S(3), S(4)))",
        "__high2float(__hgt2(P(1, 2), P(2, 1))) + __low2float(__hgt2(P(1, 2), P(2, 1)))",
        "__hbgt2(P(1, 2), P(2, 1)) + 2 * __hbge2(P(1, 2), P(1, 1))",
        "(float)S(5u) + (float)S((int64_t)-6) + (float)S((short)3) + (float)S(9ull)",
    ) == [5, 0, 3, 1, 43, 1, 2, 11]


def test_integers_become_small_floats_in_one_rounding(program: Make) -> None:
    # Halfway between two bfloat16, and one more: by way of a float it would be rounded to even.
    assert _values(
        program,
        "",
        "(float)__nv_bfloat16((1ll << 40) + (1ll << 32) + 1) - (float)(1ll << 40)",
        "(float)__int2bfloat16_rn(-((1 << 30) + (1 << 22) + 1)) + (float)(1 << 30)",
        "__bfloat162int_rn(__nv_bfloat16(7)) + __half2uint_rz(__half(2.5f))",
    ) == [2.0**33, -(2.0**23), 9]


@MODES
def test_atomics_on_two_bytes_and_of_one_block(program: Make, mode: Mode) -> None:
    p = program("""extern "C" __global__ void f(int* y, int64_t n) {
        __shared__ unsigned short owner;
        __shared__ int least, bits;
        if (threadIdx.x == 0) { owner = 0; least = 99; bits = 0; }
        __syncthreads();
        if (atomicCAS(&owner, (unsigned short)0, (unsigned short)7) == 0) atomicAdd_system(y, 1);
        atomicMin_block(&least, (int)threadIdx.x + 3);
        atomicOr_block(&bits, 1 << threadIdx.x % 8);
        __syncthreads();
        if (threadIdx.x == 0) { y[1 + 3 * blockIdx.x] = owner; y[2 + 3 * blockIdx.x] = least; }
        if (threadIdx.x == 1) y[3 + 3 * blockIdx.x] = bits;
    }""")
    y = torch.zeros(7, dtype=torch.int32)
    p.run(y, 7, grid=2, mode=mode)
    assert y.tolist() == [2, 7, 3, 255, 7, 3, 255]


@MODES
def test_atomic_additions_of_small_floats_by_several_blocks(program: Make, mode: Mode) -> None:
    p = program("""extern "C" __global__ void f(__nv_bfloat16* y, int64_t n) {
        atomicAdd(y, __nv_bfloat16(1));
        atomicAdd((__nv_bfloat162*)(y + 2), __floats2bfloat162_rn(1, 2));
    }""")
    y = torch.zeros(4, dtype=torch.bfloat16)
    p.run(y, 4, grid=4, block=8, mode=mode)
    assert y.tolist() == [32, 0, 32, 64]


@MODES
def test_lanes_that_all_hold_one_value(program: Make, mode: Mode) -> None:
    p = program("""extern "C" __global__ void f(int* y, int64_t n) {
        int all, some;
        unsigned a = __match_all_sync(0xffffffffu, 5, &all);
        unsigned b = __match_all_sync(0xffffffffu, threadIdx.x / 31, &some);
        y[threadIdx.x] = (a == 0xffffffffu) + 2 * all + 4 * (b != 0) + 8 * some;
    }""")
    y = torch.zeros(32, dtype=torch.int32)
    p.run(y, 32, mode=mode)
    assert set(y.tolist()) == {3}


GUARDED = """extern "C" __global__ void f(float* y, int64_t n) {
    unsigned mask = __ballot_sync(0xffffffffu, threadIdx.x < n);
    if (threadIdx.x >= n) return;
    float v = y[threadIdx.x];
    for (int d = 16; d > 0; d /= 2) {
        float other = __shfl_down_sync(mask, v, d);
        if (%s) v += other;
    }
    if (threadIdx.x == 0) y[0] = v;
}"""


@MODES
def test_value_of_a_lane_outside_the_mask_may_be_thrown_away(program: Make, mode: Mode) -> None:
    y = torch.arange(32.0)
    program(GUARDED % "threadIdx.x + d < n").run(y, 20, mode=mode)
    assert y[0] == sum(range(20))
    y = torch.arange(32.0)
    program(GUARDED % "true").run(y, 20, mode=mode)
    assert y[0].isnan()


@MODES
def test_file_with_a_byte_order_mark(program: Make, mode: Mode) -> None:
    p = program(KERNEL % "y[threadIdx.x] = 1;")
    p.path.write_text("\ufeff" + p.path.read_text(), encoding="utf-8")
    y = torch.zeros(32)
    p.run(y, 32, mode=mode)
    assert y.sum() == 32


def test_more_shared_variables_than_anybody_needs(program: Make) -> None:
    p = program(
        """template <int I> __device__ float one(float x) {
            __shared__ float part[32];
            part[threadIdx.x] = x + I;
            __syncthreads();
            return part[threadIdx.x ^ 1];
        }
        template <int I> struct All {
            static __device__ float run(float x) { return All<I - 1>::run(one<I>(x)); }
        };
        template <> struct All<0> { static __device__ float run(float x) { return x; } };
        """
        + KERNEL % "y[threadIdx.x] = All<80>::run(0);"
    )
    y = torch.zeros(32)
    p.run(y, 32)
    assert set(y.tolist()) == {80 * 81 / 2}
