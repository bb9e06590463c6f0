// reduce_add: dst += src, the arithmetic inside every all-reduce.
//
//   nvcc -O3 -arch=sm_80 -std=c++17 -cubin kernels.cu      (the kit does this, and launches it)
//   grader check a2.reduce_add                             (on the CPU too, without a GPU)
//
// dst, src: n elements, float or bfloat16, not overlapping; bfloat16 is added in float and rounded
// once. Any n (also 0), any alignment that the type allows, any grid, blocks of 32, 64, … 512
// threads. The operation moves 3 n elements and computes almost nothing: only memory counts.
#include <cuda_bf16.h>
#include <cstdint>

__device__ __forceinline__ float add(float a, float b) { return a + b; }
__device__ __forceinline__ __nv_bfloat16 add(__nv_bfloat16 a, __nv_bfloat16 b) {
    return __float2bfloat16(__bfloat162float(a) + __bfloat162float(b));
}

// BEGIN SOLUTION
// Version 1: a thread strides over the elements, one at a time. Coalesced, but every warp has only
// 128 (fp32) or 64 (bf16) bytes in flight per load.
template <typename T>
__device__ void reduce_add1(T* dst, const T* src, int64_t n) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        dst[i] = add(dst[i], src[i]);
}

// Sixteen bytes of T, moved by one instruction.
template <typename T>
struct alignas(16) Pack {
    T item[16 / sizeof(T)];
};

template <typename T>
__device__ __forceinline__ void add_pack(T* dst, const T* src) {
    Pack<T> a = *reinterpret_cast<const Pack<T>*>(dst);
    Pack<T> b = *reinterpret_cast<const Pack<T>*>(src);
#pragma unroll
    for (int j = 0; j < (int)(16 / sizeof(T)); j++) a.item[j] = add(a.item[j], b.item[j]);
    *reinterpret_cast<Pack<T>*>(dst) = a;
}

// Version 2: 16-byte accesses between the first and the last multiple of 16; single elements
// before and after. When dst and src lie differently to such multiples, only single elements work.
template <typename T>
__device__ void reduce_add2(T* dst, const T* src, int64_t n) {
    constexpr int width = 16 / sizeof(T);
    int64_t begin = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    unsigned offset = (unsigned)((uintptr_t)dst % 16);
    if (offset != (unsigned)((uintptr_t)src % 16)) {
        for (int64_t i = begin; i < n; i += stride) dst[i] = add(dst[i], src[i]);
        return;
    }
    int64_t head = min((int64_t)((16 - offset) % 16 / sizeof(T)), n);
    int64_t packs = (n - head) / width;
    for (int64_t i = begin; i < head; i += stride) dst[i] = add(dst[i], src[i]);
    for (int64_t i = begin; i < packs; i += stride)
        add_pack(dst + head + i * width, src + head + i * width);
    for (int64_t i = head + packs * width + begin; i < n; i += stride)
        dst[i] = add(dst[i], src[i]);
}

// Version 3: as version 2, with several loads in flight before the first store: a thread takes
// UNROLL packs, a grid apart, so that each instruction of a warp still touches 512 bytes in a row.
constexpr int UNROLL = 4;

template <typename T>
__device__ void reduce_add3(T* __restrict__ dst, const T* __restrict__ src, int64_t n) {
    constexpr int width = 16 / sizeof(T);
    int64_t begin = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    unsigned offset = (unsigned)((uintptr_t)dst % 16);
    if (offset != (unsigned)((uintptr_t)src % 16)) {
        for (int64_t i = begin; i < n; i += stride) dst[i] = add(dst[i], src[i]);
        return;
    }
    int64_t head = min((int64_t)((16 - offset) % 16 / sizeof(T)), n);
    int64_t packs = (n - head) / width;
    Pack<T>* to = reinterpret_cast<Pack<T>*>(dst + head);
    const Pack<T>* from = reinterpret_cast<const Pack<T>*>(src + head);
    int64_t i = begin;
    for (; i + (UNROLL - 1) * stride < packs; i += UNROLL * stride) {
        Pack<T> a[UNROLL], b[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            a[u] = to[i + u * stride];
            b[u] = from[i + u * stride];
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
#pragma unroll
            for (int j = 0; j < width; j++) a[u].item[j] = add(a[u].item[j], b[u].item[j]);
            to[i + u * stride] = a[u];
        }
    }
    for (; i < packs; i += stride) add_pack(dst + head + i * width, src + head + i * width);
    for (int64_t j = begin; j < head; j += stride) dst[j] = add(dst[j], src[j]);
    for (int64_t j = head + packs * width + begin; j < n; j += stride) dst[j] = add(dst[j], src[j]);
}
// END SOLUTION

// What is launched for both types.
template <typename T>
__device__ void reduce_add(T* dst, const T* src, int64_t n) {
    // BEGIN SOLUTION
    reduce_add3(dst, src, n);
    // END SOLUTION
}

extern "C" __global__ void reduce_add_fp32(float* dst, const float* src, int64_t n) {
    reduce_add(dst, src, n);
}

extern "C" __global__ void reduce_add_bf16(__nv_bfloat16* dst, const __nv_bfloat16* src,
                                           int64_t n) {
    reduce_add(dst, src, n);
}
