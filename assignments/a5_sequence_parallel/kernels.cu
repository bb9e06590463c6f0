// attention_merge and layer_norm.
//
//   nvcc -O3 -arch=sm_80 -std=c++17 -cubin kernels.cu      (the kit does this, and launches it)
//   grader check a5.attention_merge a5.layer_norm          (on the CPU too, without a GPU)
//
// T is float or bfloat16; arithmetic and statistics are float. Any shape (rows may be 0), any
// alignment that the types allow, any grid, blocks of 32, 64, … 512 threads.
//
// attention_merge [Dao et al. 2022; Liu et al. 2023]: two attentions over different keys into one.
//   lse = log(exp(lse_a) + exp(lse_b)),  out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b
//   out, out_a, out_b: (rows, dim) of T; lse, lse_a, lse_b: (rows) floats. A side that attended to
//   nothing has lse -inf and out 0; when both did, so has the result.
//
// layer_norm [Ba, Kiros, Hinton 2016], over the last dimension:
//   mean = sum x / hidden,  rstd = 1 / sqrt(sum (x - mean)^2 / hidden + eps),
//   y = (x - mean) rstd weight + bias
//   input, out: (rows, hidden) of T; weight, bias: (hidden) of T; mean, rstd: (rows) floats.
//   backward, with h = (x - mean) rstd and d = grad_out weight:
//   grad_input = rstd (d - sum d / hidden - h sum(d h) / hidden)
//   grad_weight += sum over rows of grad_out h,  grad_bias += sum over rows of grad_out: (hidden)
//   floats that are added to, in any order. Blocks get 8 hidden bytes of dynamic shared memory
//   (so hidden is at most 28672).
#include <cuda_bf16.h>
#include <cstdint>

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void from_float(float x, float* out) { *out = x; }
__device__ __forceinline__ void from_float(float x, __nv_bfloat16* out) {
    *out = __float2bfloat16(x);
}

// What is launched for both types.
template <typename T>
__device__ void attention_merge(T* out, float* lse, const T* out_a, const float* lse_a,
                                const T* out_b, const float* lse_b, int64_t rows, int64_t dim) {
    // TODO(a5.attention_merge)
}

template <typename T>
__device__ void layer_norm_forward(T* out, float* mean, float* rstd, const T* input,
                                   const T* weight, const T* bias, int64_t rows, int64_t hidden,
                                   float eps) {
    // TODO(a5.layer_norm)
}

template <typename T>
__device__ void layer_norm_backward(T* grad_input, float* grad_weight, float* grad_bias,
                                    const T* grad_out, const T* input, const T* weight,
                                    const float* mean, const float* rstd, int64_t rows,
                                    int64_t hidden) {
    // TODO(a5.layer_norm)
}

#define ENTRIES(T, suffix)                                                                        \
    extern "C" __global__ void attention_merge_##suffix(                                          \
        T* out, float* lse, const T* out_a, const float* lse_a, const T* out_b,                   \
        const float* lse_b, int64_t rows, int64_t dim) {                                          \
        attention_merge(out, lse, out_a, lse_a, out_b, lse_b, rows, dim);                         \
    }                                                                                             \
    extern "C" __global__ void layer_norm_forward_##suffix(                                       \
        T* out, float* mean, float* rstd, const T* input, const T* weight, const T* bias,         \
        int64_t rows, int64_t hidden, float eps) {                                                \
        layer_norm_forward(out, mean, rstd, input, weight, bias, rows, hidden, eps);              \
    }                                                                                             \
    extern "C" __global__ void layer_norm_backward_##suffix(                                      \
        T* grad_input, float* grad_weight, float* grad_bias, const T* grad_out, const T* input,   \
        const T* weight, const float* mean, const float* rstd, int64_t rows, int64_t hidden) {    \
        layer_norm_backward(grad_input, grad_weight, grad_bias, grad_out, input, weight, mean,    \
                            rstd, rows, hidden);                                                  \
    }
ENTRIES(float, fp32)
ENTRIES(__nv_bfloat16, bf16)
