// adamw: one step of AdamW in one pass over memory [Loshchilov, Hutter 2019].
//
//   nvcc -O3 -arch=sm_80 -std=c++17 -cubin kernels.cu      (the kit does this, and launches it)
//   grader check a3.adamw                                  (on the CPU too, without a GPU)
//
//   m = beta1 m + (1 - beta1) g
//   v = beta2 v + (1 - beta2) g^2
//   p = p - lr weight_decay p - lr (m / bias_correction1) / (sqrt(v / bias_correction2) + eps)
//
// param, grad: n elements, float or bfloat16; exp_avg (m), exp_avg_sq (v): n floats. All change in
// place but grad. bias_correction = 1 - beta^step comes from the host. Arithmetic in float; a
// bfloat16 parameter is rounded once, at the end. Any n (also 0), any alignment that the types
// allow, any grid, blocks of 32, 64, … 512 threads.
#include <cuda_bf16.h>
#include <cstdint>

struct Hyper {
    float lr, beta1, beta2, eps, weight_decay, bias_correction1, bias_correction2;
};

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void from_float(float x, float* out) { *out = x; }
__device__ __forceinline__ void from_float(float x, __nv_bfloat16* out) {
    *out = __float2bfloat16(x);
}

// What is launched for both types.
template <typename T>
__device__ void adamw(T* param, const T* grad, float* exp_avg, float* exp_avg_sq, int64_t n,
                      const Hyper& h) {
    // TODO(a3.adamw)
}

extern "C" __global__ void adamw_fp32(float* param, const float* grad, float* exp_avg,
                                      float* exp_avg_sq, int64_t n, float lr, float beta1,
                                      float beta2, float eps, float weight_decay,
                                      float bias_correction1, float bias_correction2) {
    adamw(param, grad, exp_avg, exp_avg_sq, n,
          Hyper{lr, beta1, beta2, eps, weight_decay, bias_correction1, bias_correction2});
}

extern "C" __global__ void adamw_bf16(__nv_bfloat16* param, const __nv_bfloat16* grad,
                                      float* exp_avg, float* exp_avg_sq, int64_t n, float lr,
                                      float beta1, float beta2, float eps, float weight_decay,
                                      float bias_correction1, float bias_correction2) {
    adamw(param, grad, exp_avg, exp_avg_sq, n,
          Hyper{lr, beta1, beta2, eps, weight_decay, bias_correction1, bias_correction2});
}
