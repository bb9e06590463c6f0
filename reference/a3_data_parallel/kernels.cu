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

// BEGIN SOLUTION
__device__ __forceinline__ float step(float p, float g, float& m, float& v, const Hyper& h) {
    m = h.beta1 * m + (1.0f - h.beta1) * g;
    v = h.beta2 * v + (1.0f - h.beta2) * g * g;
    float update = (m / h.bias_correction1) / (sqrtf(v / h.bias_correction2) + h.eps);
    return p - h.lr * (h.weight_decay * p + update);
}

// Version 1: one element at a time. Four streams in, three out: the fused step already saves the
// dozen passes of an unfused optimizer.
template <typename T>
__device__ void adamw1(T* param, const T* grad, float* exp_avg, float* exp_avg_sq, int64_t begin,
                       int64_t end, const Hyper& h) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t i = begin + (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < end; i += stride) {
        float m = exp_avg[i], v = exp_avg_sq[i];
        from_float(step(to_float(param[i]), to_float(grad[i]), m, v, h), &param[i]);
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
    }
}

template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
    T item[N];
};

// Version 2: as many elements per thread as fill 16 bytes of parameters; the float moments of
// eight bfloat16 parameters are two 16-byte accesses each.
template <typename T>
__device__ void adamw2(T* __restrict__ param, const T* __restrict__ grad,
                       float* __restrict__ exp_avg, float* __restrict__ exp_avg_sq, int64_t n,
                       const Hyper& h) {
    constexpr int width = 16 / sizeof(T);
    int64_t head = min((int64_t)((16 - (uintptr_t)param % 16) % 16 / sizeof(T)), n);
    // After the head every stream must stand on a multiple of 16 bytes, or none is wide.
    uintptr_t phase = (uintptr_t)(param + head) | (uintptr_t)(grad + head) |
                      (uintptr_t)(exp_avg + head) | (uintptr_t)(exp_avg_sq + head);
    if (phase % 16 != 0) {
        adamw1(param, grad, exp_avg, exp_avg_sq, 0, n, h);
        return;
    }
    int64_t packs = (n - head) / width;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += stride) {
        int64_t at = head + i * width;
        Pack<T, width> p = *reinterpret_cast<const Pack<T, width>*>(param + at);
        Pack<T, width> g = *reinterpret_cast<const Pack<T, width>*>(grad + at);
        Pack<float, 4> m[width / 4], v[width / 4];
#pragma unroll
        for (int q = 0; q < width / 4; q++) {
            m[q] = *reinterpret_cast<const Pack<float, 4>*>(exp_avg + at + 4 * q);
            v[q] = *reinterpret_cast<const Pack<float, 4>*>(exp_avg_sq + at + 4 * q);
        }
#pragma unroll
        for (int j = 0; j < width; j++)
            from_float(step(to_float(p.item[j]), to_float(g.item[j]), m[j / 4].item[j % 4],
                            v[j / 4].item[j % 4], h),
                       &p.item[j]);
        *reinterpret_cast<Pack<T, width>*>(param + at) = p;
#pragma unroll
        for (int q = 0; q < width / 4; q++) {
            *reinterpret_cast<Pack<float, 4>*>(exp_avg + at + 4 * q) = m[q];
            *reinterpret_cast<Pack<float, 4>*>(exp_avg_sq + at + 4 * q) = v[q];
        }
    }
    adamw1(param, grad, exp_avg, exp_avg_sq, 0, head, h);
    adamw1(param, grad, exp_avg, exp_avg_sq, head + packs * width, n, h);
}
// END SOLUTION

// What is launched for both types.
template <typename T>
__device__ void adamw(T* param, const T* grad, float* exp_avg, float* exp_avg_sq, int64_t n,
                      const Hyper& h) {
    // BEGIN SOLUTION
    adamw2(param, grad, exp_avg, exp_avg_sq, n, h);
    // END SOLUTION
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
