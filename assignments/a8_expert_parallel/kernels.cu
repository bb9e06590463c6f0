// moe_permute and moe_unpermute: tokens into the order of their experts, and back.
//
//   nvcc -O3 -arch=sm_80 -std=c++17 -cubin kernels.cu      (the kit does this, and launches it)
//   grader check a8.moe_permute a8.moe_unpermute           (on the CPU too, without a GPU)
//
// Assignment a = token * k + choice sends token a / k to expert experts[a]; an expert of -1 means
// that it was dropped. The kernels, in the order in which they are launched:
//   moe_permute_count     counts[e] += number of assignments with experts[a] == e
//   moe_permute_position  position[a] = begin[e] + number of a' < a with the same expert e, or -1;
//                         begin[e] is where the rows of expert e start. The order is stable.
//   moe_permute           rows[position[a]] = tokens[a / k]
//   moe_unpermute         out[token] = sum over its choices of weights[a] rows[position[a]]
// tokens, out: (tokens, hidden); rows: (kept assignments, hidden), of float or bfloat16; sums are
// float. weights: (tokens, k) floats. experts, position: (tokens, k) ints. Any sizes, any alignment
// that the types allow, any grid, blocks of 32, 64, … 512 threads.
#include <cuda_bf16.h>
#include <cstdint>

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void from_float(float x, float* out) { *out = x; }
__device__ __forceinline__ void from_float(float x, __nv_bfloat16* out) {
    *out = __float2bfloat16(x);
}

extern "C" __global__ void moe_permute_count(int* counts, const int* experts, int64_t assignments,
                                     int64_t num_experts) {
    // TODO(a8.moe_permute)
}

extern "C" __global__ void moe_permute_position(int* position, const int* experts, const int* begin,
                                        int64_t assignments, int64_t num_experts) {
    // TODO(a8.moe_permute)
}

// What is launched for both types.
template <typename T>
__device__ void moe_permute(T* rows, const T* tokens, const int* position, int64_t assignments,
                            int64_t k, int64_t hidden) {
    // TODO(a8.moe_permute)
}

template <typename T>
__device__ void moe_unpermute(T* out, const T* rows, const float* weights, const int* position,
                              int64_t tokens, int64_t k, int64_t hidden) {
    // TODO(a8.moe_unpermute)
}

extern "C" __global__ void moe_permute_fp32(float* rows, const float* tokens, const int* position,
                                            int64_t assignments, int64_t k, int64_t hidden) {
    moe_permute(rows, tokens, position, assignments, k, hidden);
}

extern "C" __global__ void moe_permute_bf16(__nv_bfloat16* rows, const __nv_bfloat16* tokens,
                                            const int* position, int64_t assignments, int64_t k,
                                            int64_t hidden) {
    moe_permute(rows, tokens, position, assignments, k, hidden);
}

extern "C" __global__ void moe_unpermute_fp32(float* out, const float* rows, const float* weights,
                                              const int* position, int64_t tokens, int64_t k,
                                              int64_t hidden) {
    moe_unpermute(out, rows, weights, position, tokens, k, hidden);
}

extern "C" __global__ void moe_unpermute_bf16(__nv_bfloat16* out, const __nv_bfloat16* rows,
                                              const float* weights, const int* position,
                                              int64_t tokens, int64_t k, int64_t hidden) {
    moe_unpermute(out, rows, weights, position, tokens, k, hidden);
}
