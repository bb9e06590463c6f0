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

// BEGIN SOLUTION
template <typename T>
struct alignas(16) Pack {
    T item[16 / sizeof(T)];
};

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

// The two weights of a row and its new lse, without overflow: exponents are at most 0.
struct Weights {
    float a, b, lse;
};

__device__ __forceinline__ Weights weigh(float lse_a, float lse_b) {
    float most = fmaxf(lse_a, lse_b);
    if (most == -INFINITY) return {0.0f, 0.0f, -INFINITY};
    float a = expf(lse_a - most), b = expf(lse_b - most), sum = a + b;
    return {a / sum, b / sum, most + logf(sum)};
}

// Version 1: a thread per row.
template <typename T>
__device__ void merge1(T* out, float* lse, const T* out_a, const float* lse_a, const T* out_b,
                       const float* lse_b, int64_t rows, int64_t dim) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t row = first; row < rows; row += stride) {
        Weights w = weigh(lse_a[row], lse_b[row]);
        for (int64_t j = row * dim; j < (row + 1) * dim; j++)
            from_float(w.a * to_float(out_a[j]) + w.b * to_float(out_b[j]), &out[j]);
        lse[row] = w.lse;
    }
}

// Version 2: a thread per 16 bytes of the result; the few bytes of lse come from the cache, and the
// weights are computed again for each pack, which costs nothing beside the memory.
template <typename T>
__device__ void merge2(T* __restrict__ out, float* __restrict__ lse, const T* __restrict__ out_a,
                       const float* __restrict__ lse_a, const T* __restrict__ out_b,
                       const float* __restrict__ lse_b, int64_t rows, int64_t dim) {
    constexpr int width = 16 / sizeof(T);
    uintptr_t phase = (uintptr_t)out | (uintptr_t)out_a | (uintptr_t)out_b;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t row = first; row < rows; row += stride)
        lse[row] = weigh(lse_a[row], lse_b[row]).lse;
    if (phase % 16 != 0 || dim % width != 0) {
        for (int64_t i = first; i < rows * dim; i += stride) {
            Weights w = weigh(lse_a[i / dim], lse_b[i / dim]);
            from_float(w.a * to_float(out_a[i]) + w.b * to_float(out_b[i]), &out[i]);
        }
        return;
    }
    // A 64-bit division costs several times as much as a 32-bit one: use it only where it must be.
    unsigned packs_per_row = (unsigned)(dim / width);
    for (int64_t i = first; i < rows * packs_per_row; i += stride) {
        int64_t row = i >> 32 == 0 ? (unsigned)i / packs_per_row : i / packs_per_row;
        Pack<T> a = reinterpret_cast<const Pack<T>*>(out_a)[i];
        Pack<T> b = reinterpret_cast<const Pack<T>*>(out_b)[i];
        Weights w = weigh(lse_a[row], lse_b[row]);
#pragma unroll
        for (int j = 0; j < width; j++)
            from_float(w.a * to_float(a.item[j]) + w.b * to_float(b.item[j]), &a.item[j]);
        reinterpret_cast<Pack<T>*>(out)[i] = a;
    }
}

// layer_norm forward, version 1: a thread per row, three passes.
template <typename T>
__device__ void norm_forward1(T* out, float* mean, float* rstd, const T* input, const T* weight,
                              const T* bias, int64_t rows, int64_t hidden, float eps) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t row = first; row < rows; row += stride) {
        const T* x = input + row * hidden;
        float sum = 0.0f, squares = 0.0f;
        for (int64_t j = 0; j < hidden; j++) sum += to_float(x[j]);
        float m = sum / hidden;
        for (int64_t j = 0; j < hidden; j++) {
            float centred = to_float(x[j]) - m;
            squares += centred * centred;
        }
        float r = rsqrtf(squares / hidden + eps);
        for (int64_t j = 0; j < hidden; j++) {
            float y = (to_float(x[j]) - m) * r * to_float(weight[j]) + to_float(bias[j]);
            from_float(y, &out[row * hidden + j]);
        }
        mean[row] = m;
        rstd[row] = r;
    }
}

// The sum over all threads of the block, in every thread. `part` may be used again at once.
__device__ __forceinline__ float block_sum(float x, float* part) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    x = warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? part[threadIdx.x % 32] : 0.0f);
    __syncthreads();
    return x;
}

// Packs of a row that a thread keeps in registers: 4096 floats, or 8192 bfloat16, per 256 threads.
// What a longer row has beyond them is read again, from the cache.
constexpr int KEPT = 4;

// Whether all rows begin at a multiple of 16 bytes.
template <typename T>
__device__ __forceinline__ bool can_pack(uintptr_t addresses, int64_t hidden) {
    return addresses % 16 == 0 && hidden % (16 / sizeof(T)) == 0;
}

// layer_norm forward, version 2: a block per row, 16-byte accesses. The row stays in registers from
// the mean to the result, so memory is read once although the variance needs the mean first.
template <typename T>
__device__ void norm_forward2(T* out, float* mean, float* rstd, const T* input, const T* weight,
                              const T* bias, int64_t rows, int64_t hidden, float eps) {
    constexpr int width = 16 / sizeof(T);
    __shared__ float part[32];
    bool wide = can_pack<T>(
        (uintptr_t)out | (uintptr_t)input | (uintptr_t)weight | (uintptr_t)bias, hidden);
    int64_t packs = wide ? hidden / width : 0;
    int64_t rest = packs * width + threadIdx.x;  // where this thread's single elements begin
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* x = input + row * hidden;
        T* y = out + row * hidden;
        Pack<T> kept[KEPT];
        float sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            int64_t i = threadIdx.x + (int64_t)k * blockDim.x;
            if (i < packs) kept[k] = reinterpret_cast<const Pack<T>*>(x)[i];
        }
        auto each = [&](auto body) {
#pragma unroll
            for (int k = 0; k < KEPT; k++) {
                int64_t i = threadIdx.x + (int64_t)k * blockDim.x;
                if (i < packs) body(i, kept[k]);
            }
            for (int64_t i = threadIdx.x + (int64_t)KEPT * blockDim.x; i < packs; i += blockDim.x) {
                Pack<T> pack = reinterpret_cast<const Pack<T>*>(x)[i];
                body(i, pack);
            }
        };
        each([&](int64_t, const Pack<T>& pack) {
#pragma unroll
            for (int j = 0; j < width; j++) sum += to_float(pack.item[j]);
        });
        for (int64_t j = rest; j < hidden; j += blockDim.x) sum += to_float(x[j]);
        float m = block_sum(sum, part) / hidden;
        each([&](int64_t, const Pack<T>& pack) {
#pragma unroll
            for (int j = 0; j < width; j++)
                squares += (to_float(pack.item[j]) - m) * (to_float(pack.item[j]) - m);
        });
        for (int64_t j = rest; j < hidden; j += blockDim.x)
            squares += (to_float(x[j]) - m) * (to_float(x[j]) - m);
        float r = rsqrtf(block_sum(squares, part) / hidden + eps);
        each([&](int64_t i, const Pack<T>& pack) {
            Pack<T> w = reinterpret_cast<const Pack<T>*>(weight)[i], result;
            Pack<T> b = reinterpret_cast<const Pack<T>*>(bias)[i];
#pragma unroll
            for (int j = 0; j < width; j++)
                from_float((to_float(pack.item[j]) - m) * r * to_float(w.item[j]) +
                               to_float(b.item[j]), &result.item[j]);
            reinterpret_cast<Pack<T>*>(y)[i] = result;
        });
        for (int64_t j = rest; j < hidden; j += blockDim.x)
            from_float((to_float(x[j]) - m) * r * to_float(weight[j]) + to_float(bias[j]), &y[j]);
        if (threadIdx.x == 0) {
            mean[row] = m;
            rstd[row] = r;
        }
    }
}

// layer_norm backward, version 1: a thread per row, atomics for every element of the weights'
// gradients: as many atomics as there are elements.
template <typename T>
__device__ void norm_backward1(T* grad_input, float* grad_weight, float* grad_bias,
                               const T* grad_out, const T* input, const T* weight,
                               const float* mean, const float* rstd, int64_t rows,
                               int64_t hidden) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t row = first; row < rows; row += stride) {
        const T* x = input + row * hidden;
        const T* dy = grad_out + row * hidden;
        float m = mean[row], r = rstd[row], sum = 0.0f, dot = 0.0f;
        for (int64_t j = 0; j < hidden; j++) {
            float h = (to_float(x[j]) - m) * r, g = to_float(dy[j]), d = g * to_float(weight[j]);
            sum += d;
            dot += d * h;
            atomicAdd(&grad_weight[j], g * h);
            atomicAdd(&grad_bias[j], g);
        }
        for (int64_t j = 0; j < hidden; j++) {
            float h = (to_float(x[j]) - m) * r, d = to_float(dy[j]) * to_float(weight[j]);
            from_float(r * (d - sum / hidden - h * dot / hidden), &grad_input[row * hidden + j]);
        }
    }
}

// layer_norm backward, version 2: a block per row, and a thread owns the same columns in all rows
// of the block. So the weights' gradients gather in shared memory without atomics, and go to
// global memory once per block and column. Packs of x and grad_out stay in registers.
template <typename T>
__device__ void norm_backward2(T* grad_input, float* grad_weight, float* grad_bias,
                               const T* grad_out, const T* input, const T* weight,
                               const float* mean, const float* rstd, int64_t rows,
                               int64_t hidden) {
    constexpr int width = 16 / sizeof(T);
    extern __shared__ __align__(16) float gathered[];  // gradients of the weight, then of the bias
    __shared__ float part[32];
    float* of_weight = gathered;
    float* of_bias = gathered + hidden;
    for (int64_t j = threadIdx.x; j < 2 * hidden; j += blockDim.x) gathered[j] = 0.0f;
    __syncthreads();
    bool wide = can_pack<T>((uintptr_t)grad_input | (uintptr_t)grad_out | (uintptr_t)input |
                            (uintptr_t)weight, hidden);
    int64_t packs = wide ? hidden / width : 0;
    const Pack<T>* weights = reinterpret_cast<const Pack<T>*>(weight);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* x = input + row * hidden;
        const T* dy = grad_out + row * hidden;
        T* dx = grad_input + row * hidden;
        float m = mean[row], r = rstd[row], sum = 0.0f, dot = 0.0f;
        Pack<T> kept_x[KEPT], kept_dy[KEPT];
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            int64_t i = threadIdx.x + (int64_t)k * blockDim.x;
            if (i >= packs) continue;
            kept_x[k] = reinterpret_cast<const Pack<T>*>(x)[i];
            kept_dy[k] = reinterpret_cast<const Pack<T>*>(dy)[i];
        }
        auto each = [&](auto body) {
#pragma unroll
            for (int k = 0; k < KEPT; k++) {
                int64_t i = threadIdx.x + (int64_t)k * blockDim.x;
                if (i < packs) body(i, kept_x[k], kept_dy[k]);
            }
            for (int64_t i = threadIdx.x + (int64_t)KEPT * blockDim.x; i < packs; i += blockDim.x) {
                Pack<T> pack_x = reinterpret_cast<const Pack<T>*>(x)[i];
                Pack<T> pack_dy = reinterpret_cast<const Pack<T>*>(dy)[i];
                body(i, pack_x, pack_dy);
            }
        };
        int64_t rest = packs * width + threadIdx.x;  // where this thread's single elements begin
        each([&](int64_t i, const Pack<T>& px, const Pack<T>& pdy) {
            Pack<T> w = weights[i];
#pragma unroll
            for (int j = 0; j < width; j++) {
                float d = to_float(pdy.item[j]) * to_float(w.item[j]);
                sum += d;
                dot += d * (to_float(px.item[j]) - m) * r;
            }
        });
        for (int64_t j = rest; j < hidden; j += blockDim.x) {
            float d = to_float(dy[j]) * to_float(weight[j]);
            sum += d;
            dot += d * (to_float(x[j]) - m) * r;
        }
        sum = block_sum(sum, part) / hidden;
        dot = block_sum(dot, part) / hidden;
        each([&](int64_t i, const Pack<T>& px, const Pack<T>& pdy) {
            Pack<T> w = weights[i], result;
            float4* sums_w = reinterpret_cast<float4*>(of_weight + i * width);
            float4* sums_b = reinterpret_cast<float4*>(of_bias + i * width);
#pragma unroll
            for (int q = 0; q < width / 4; q++) {
                float4 sum_w = sums_w[q], sum_b = sums_b[q];
                float* all_w[4] = {&sum_w.x, &sum_w.y, &sum_w.z, &sum_w.w};
                float* all_b[4] = {&sum_b.x, &sum_b.y, &sum_b.z, &sum_b.w};
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    float g = to_float(pdy.item[4 * q + j]);
                    float h = (to_float(px.item[4 * q + j]) - m) * r;
                    from_float(r * (g * to_float(w.item[4 * q + j]) - sum - h * dot),
                               &result.item[4 * q + j]);
                    *all_w[j] += g * h;
                    *all_b[j] += g;
                }
                sums_w[q] = sum_w;
                sums_b[q] = sum_b;
            }
            reinterpret_cast<Pack<T>*>(dx)[i] = result;
        });
        for (int64_t j = rest; j < hidden; j += blockDim.x) {
            float g = to_float(dy[j]), h = (to_float(x[j]) - m) * r;
            from_float(r * (g * to_float(weight[j]) - sum - h * dot), &dx[j]);
            of_weight[j] += g * h;
            of_bias[j] += g;
        }
    }
    __syncthreads();
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
        atomicAdd(&grad_weight[j], of_weight[j]);
        atomicAdd(&grad_bias[j], of_bias[j]);
    }
}
// END SOLUTION

// What is launched for both types.
template <typename T>
__device__ void attention_merge(T* out, float* lse, const T* out_a, const float* lse_a,
                                const T* out_b, const float* lse_b, int64_t rows, int64_t dim) {
    // BEGIN SOLUTION
    merge2(out, lse, out_a, lse_a, out_b, lse_b, rows, dim);
    // END SOLUTION
}

template <typename T>
__device__ void layer_norm_forward(T* out, float* mean, float* rstd, const T* input,
                                   const T* weight, const T* bias, int64_t rows, int64_t hidden,
                                   float eps) {
    // BEGIN SOLUTION
    norm_forward2(out, mean, rstd, input, weight, bias, rows, hidden, eps);
    // END SOLUTION
}

template <typename T>
__device__ void layer_norm_backward(T* grad_input, float* grad_weight, float* grad_bias,
                                    const T* grad_out, const T* input, const T* weight,
                                    const float* mean, const float* rstd, int64_t rows,
                                    int64_t hidden) {
    // BEGIN SOLUTION
    norm_backward2(grad_input, grad_weight, grad_bias, grad_out, input, weight, mean, rstd, rows,
                   hidden);
    // END SOLUTION
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
