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

// BEGIN SOLUTION
// Counting, version 1: an atomic in global memory for each assignment.
__device__ void count1(int* counts, const int* experts, int64_t assignments) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t a = first; a < assignments; a += stride)
        if (experts[a] >= 0) atomicAdd(&counts[experts[a]], 1);
}

// Counting, version 2: a histogram per block in shared memory, in slices of experts, then one
// atomic per block and expert.
__device__ void count2(int* counts, const int* experts, int64_t assignments,
                       int64_t num_experts) {
    constexpr int slice = 1024;
    __shared__ int mine[slice];
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t low = 0; low < num_experts; low += slice) {
        int size = (int)min((int64_t)slice, num_experts - low);
        for (int e = threadIdx.x; e < size; e += blockDim.x) mine[e] = 0;
        __syncthreads();
        for (int64_t a = first; a < assignments; a += stride) {
            int64_t e = experts[a] - low;
            if (experts[a] >= 0 && e >= 0 && e < size) atomicAdd(&mine[e], 1);
        }
        __syncthreads();
        for (int e = threadIdx.x; e < size; e += blockDim.x)
            if (mine[e] > 0) atomicAdd(&counts[low + e], mine[e]);
        __syncthreads();
    }
}

// Positions, version 1: each assignment counts its predecessors. Quadratic.
__device__ void position1(int* position, const int* experts, const int* begin,
                          int64_t assignments) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t a = first; a < assignments; a += stride) {
        int before = 0;
        for (int64_t other = 0; other < a; other++) before += experts[other] == experts[a];
        position[a] = experts[a] < 0 ? -1 : begin[experts[a]] + before;
    }
}

// Positions, version 2: a block per expert walks over all assignments in order, a block's width at
// a time; ballots count within a warp, shared memory across warps. The list of experts is small
// and stays in the cache for all of them. Block 0 also marks what was dropped.
__device__ void position2(int* position, const int* experts, const int* begin,
                          int64_t assignments, int64_t num_experts) {
    __shared__ int of_warp[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int64_t e = blockIdx.x; e < num_experts; e += gridDim.x) {
        int next = begin[e];
        for (int64_t low = 0; low < assignments; low += blockDim.x) {
            int64_t a = low + threadIdx.x;
            int expert = a < assignments ? experts[a] : -1;
            unsigned votes = __ballot_sync(0xffffffffu, expert == e);
            if (lane == 0) of_warp[warp] = __popc(votes);
            __syncthreads();
            int before = __popc(votes & ((1u << lane) - 1u)), all = 0;
            for (int w = 0; w < warps; w++) {
                if (w < warp) before += of_warp[w];
                all += of_warp[w];
            }
            if (expert == e) position[a] = next + before;
            next += all;
            __syncthreads();  // of_warp[] is used again for the next stretch
        }
    }
    if (blockIdx.x != 0) return;
    for (int64_t a = threadIdx.x; a < assignments; a += blockDim.x)
        if (experts[a] < 0) position[a] = -1;
}

template <typename T>
struct alignas(16) Pack {
    T item[16 / sizeof(T)];
};

// Permuting, version 1: a thread per element of the result's rows.
template <typename T>
__device__ void permute1(T* rows, const T* tokens, const int* position, int64_t assignments,
                         int64_t k, int64_t hidden) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t i = first; i < assignments * hidden; i += stride) {
        int64_t a = i / hidden, j = i % hidden;
        if (position[a] >= 0) rows[position[a] * hidden + j] = tokens[a / k * hidden + j];
    }
}

// Permuting, version 2: a warp per token reads its row once and writes it to all k places, in
// 16-byte accesses where the rows allow it.
template <typename T>
__device__ void permute2(T* __restrict__ rows, const T* __restrict__ tokens,
                         const int* __restrict__ position, int64_t assignments, int64_t k,
                         int64_t hidden) {
    constexpr int width = 16 / sizeof(T);
    bool wide = ((uintptr_t)rows | (uintptr_t)tokens) % 16 == 0 && hidden % width == 0;
    int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32);
    int64_t first = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    for (int64_t token = first; token < assignments / k; token += warps) {
        const T* from = tokens + token * hidden;
        const int* places = position + token * k;
        if (wide) {
            for (int64_t j = lane * width; j < hidden; j += 32 * width) {
                Pack<T> pack = *reinterpret_cast<const Pack<T>*>(from + j);
                for (int64_t c = 0; c < k; c++)
                    if (places[c] >= 0)
                        *reinterpret_cast<Pack<T>*>(rows + places[c] * hidden + j) = pack;
            }
        } else {
            for (int64_t j = lane; j < hidden; j += 32)
                for (int64_t c = 0; c < k; c++)
                    if (places[c] >= 0) rows[places[c] * hidden + j] = from[j];
        }
    }
}

// Unpermuting, version 1: a thread per element. (A scatter of the rows would need atomics; to
// gather them needs none and has one order of summation.)
template <typename T>
__device__ void unpermute1(T* out, const T* rows, const float* weights, const int* position,
                           int64_t tokens, int64_t k, int64_t hidden) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t i = first; i < tokens * hidden; i += stride) {
        int64_t token = i / hidden, j = i % hidden;
        float sum = 0.0f;
        for (int64_t a = token * k; a < (token + 1) * k; a++)
            if (position[a] >= 0) sum += weights[a] * to_float(rows[position[a] * hidden + j]);
        from_float(sum, &out[i]);
    }
}

// Unpermuting, version 2: a warp per token, 16-byte accesses.
template <typename T>
__device__ void unpermute2(T* __restrict__ out, const T* __restrict__ rows,
                           const float* __restrict__ weights, const int* __restrict__ position,
                           int64_t tokens, int64_t k, int64_t hidden) {
    constexpr int width = 16 / sizeof(T);
    bool wide = ((uintptr_t)rows | (uintptr_t)out) % 16 == 0 && hidden % width == 0;
    int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32);
    int64_t first = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    for (int64_t token = first; token < tokens; token += warps) {
        const int* places = position + token * k;
        const float* shares = weights + token * k;
        T* to = out + token * hidden;
        if (!wide) {
            for (int64_t j = lane; j < hidden; j += 32) {
                float sum = 0.0f;
                for (int64_t c = 0; c < k; c++)
                    if (places[c] >= 0) sum += shares[c] * to_float(rows[places[c] * hidden + j]);
                from_float(sum, &to[j]);
            }
            continue;
        }
        for (int64_t j = lane * width; j < hidden; j += 32 * width) {
            float sum[width] = {};
            for (int64_t c = 0; c < k; c++) {
                if (places[c] < 0) continue;
                Pack<T> row = *reinterpret_cast<const Pack<T>*>(rows + places[c] * hidden + j);
#pragma unroll
                for (int i = 0; i < width; i++) sum[i] += shares[c] * to_float(row.item[i]);
            }
            Pack<T> result;
#pragma unroll
            for (int i = 0; i < width; i++) from_float(sum[i], &result.item[i]);
            *reinterpret_cast<Pack<T>*>(to + j) = result;
        }
    }
}
// END SOLUTION

extern "C" __global__ void moe_permute_count(int* counts, const int* experts, int64_t assignments,
                                     int64_t num_experts) {
    // BEGIN SOLUTION
    count2(counts, experts, assignments, num_experts);
    // END SOLUTION
}

extern "C" __global__ void moe_permute_position(int* position, const int* experts, const int* begin,
                                        int64_t assignments, int64_t num_experts) {
    // BEGIN SOLUTION
    position2(position, experts, begin, assignments, num_experts);
    // END SOLUTION
}

// What is launched for both types.
template <typename T>
__device__ void moe_permute(T* rows, const T* tokens, const int* position, int64_t assignments,
                            int64_t k, int64_t hidden) {
    // BEGIN SOLUTION
    permute2(rows, tokens, position, assignments, k, hidden);
    // END SOLUTION
}

template <typename T>
__device__ void moe_unpermute(T* out, const T* rows, const float* weights, const int* position,
                              int64_t tokens, int64_t k, int64_t hidden) {
    // BEGIN SOLUTION
    unpermute2(out, rows, weights, position, tokens, k, hidden);
    // END SOLUTION
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
