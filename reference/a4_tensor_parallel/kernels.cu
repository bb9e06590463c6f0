// vocab_cross_entropy: the local halves of the loss on a vocabulary that is cut into shards
// [Shoeybi et al. 2019, section 3].
//
//   nvcc -O3 -arch=sm_80 -std=c++17 -cubin kernels.cu      (the kit does this, and launches it)
//   grader check a4.vocab_cross_entropy                    (on the CPU too, without a GPU)
//
// This rank holds the columns vocab_start … vocab_start + vocab - 1 of all logits.
// logits: (tokens, vocab), float or bfloat16; target: (tokens) in the whole vocabulary.
//   forward, per token:  row_max = max_j x_j,  sum_exp = sum_j exp(x_j - row_max),
//                        target_logit = x_target, 0 when the target is on another shard
//   backward:            grad_logits_j = grad_loss (exp(x_j - logsumexp) - [j is the target]),
//                        0 where target is ignore_index; logsumexp is that of the whole vocabulary
// Statistics and arithmetic are float. Any shape (vocab >= 1, tokens may be 0), any alignment that
// the types allow, any grid, blocks of 32, 64, … 512 threads.
#include <cuda_bf16.h>
#include <cstdint>

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void from_float(float x, float* out) { *out = x; }
__device__ __forceinline__ void from_float(float x, __nv_bfloat16* out) {
    *out = __float2bfloat16(x);
}

// BEGIN SOLUTION
// Version 1: a thread per token, two passes over its row. Neighbouring threads read addresses a
// whole row apart, so every load fetches 32 bytes for the sake of 4.
template <typename T>
__device__ void forward1(float* row_max, float* sum_exp, float* target_logit, const T* logits,
                         const int64_t* target, int64_t tokens, int64_t vocab,
                         int64_t vocab_start) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t token = first; token < tokens; token += stride) {
        const T* row = logits + token * vocab;
        float most = -INFINITY, sum = 0.0f;
        for (int64_t j = 0; j < vocab; j++) most = fmaxf(most, to_float(row[j]));
        for (int64_t j = 0; j < vocab; j++) sum += expf(to_float(row[j]) - most);
        int64_t local = target[token] - vocab_start;
        row_max[token] = most;
        sum_exp[token] = sum;
        target_logit[token] = local >= 0 && local < vocab ? to_float(row[local]) : 0.0f;
    }
}

// The largest number so far, and the sum of exponentials relative to it [Milakov, Gimelshein
// 2018]: both come out of one pass, because the sum can be rescaled when a larger number comes.
struct Running {
    float most, sum;
};

__device__ __forceinline__ Running merge(Running a, Running b) {
    float most = fmaxf(a.most, b.most);
    if (most == -INFINITY) return {most, 0.0f};
    return {most, a.sum * expf(a.most - most) + b.sum * expf(b.most - most)};
}

__device__ __forceinline__ Running merge_warp(Running r) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        Running other = {__shfl_xor_sync(0xffffffffu, r.most, lanes),
                         __shfl_xor_sync(0xffffffffu, r.sum, lanes)};
        r = merge(r, other);
    }
    return r;
}

template <typename T>
struct alignas(16) Pack {
    T item[16 / sizeof(T)];
};

// How a row of any alignment is cut: single elements up to a multiple of 16 bytes, packs, the rest.
template <typename T>
struct Cut {
    int64_t head, packs, tail;
    __device__ Cut(const T* row, int64_t vocab) {
        constexpr int width = 16 / sizeof(T);
        head = min((int64_t)((16 - (uintptr_t)row % 16) % 16 / sizeof(T)), vocab);
        packs = (vocab - head) / width;
        tail = head + packs * width;
    }
};

// Version 2: a block per token, one pass in 16-byte loads. A thread folds a pack at a time, so that
// it rescales once for 4 or 8 numbers; warps are merged by shuffles, blocks through shared memory.
template <typename T>
__device__ Running fold_row(const T* row, int64_t vocab) {
    constexpr int width = 16 / sizeof(T);
    Cut<T> cut(row, vocab);
    Running mine = {-INFINITY, 0.0f};
    for (int64_t j = threadIdx.x; j < cut.head; j += blockDim.x)
        mine = merge(mine, {to_float(row[j]), 1.0f});
    const Pack<T>* packs = reinterpret_cast<const Pack<T>*>(row + cut.head);
    for (int64_t i = threadIdx.x; i < cut.packs; i += blockDim.x) {
        Pack<T> pack = packs[i];
        float x[width], most = mine.most, sum = 0.0f;
#pragma unroll
        for (int j = 0; j < width; j++) most = fmaxf(most, x[j] = to_float(pack.item[j]));
        if (most == -INFINITY) continue;
#pragma unroll
        for (int j = 0; j < width; j++) sum += expf(x[j] - most);
        mine = {most, mine.sum * expf(mine.most - most) + sum};
    }
    for (int64_t j = cut.tail + threadIdx.x; j < vocab; j += blockDim.x)
        mine = merge(mine, {to_float(row[j]), 1.0f});
    return mine;
}

template <typename T>
__device__ void forward2(float* row_max, float* sum_exp, float* target_logit, const T* logits,
                         const int64_t* target, int64_t tokens, int64_t vocab,
                         int64_t vocab_start) {
    __shared__ Running part[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
        const T* row = logits + token * vocab;
        Running mine = merge_warp(fold_row(row, vocab));
        if (lane == 0) part[warp] = mine;
        __syncthreads();
        if (warp == 0) {
            Running none = {-INFINITY, 0.0f};
            Running all = merge_warp(lane < warps ? part[lane] : none);
            if (lane == 0) {
                int64_t local = target[token] - vocab_start;
                row_max[token] = all.most;
                sum_exp[token] = all.sum;
                target_logit[token] = local >= 0 && local < vocab ? to_float(row[local]) : 0.0f;
            }
        }
        __syncthreads();  // part[] is used again for the next token
    }
}

// Backward, version 1: one element at a time.
template <typename T>
__device__ void backward1(T* grad_logits, const T* logits, const int64_t* target,
                          const float* logsumexp, const float* grad_loss, int64_t tokens,
                          int64_t vocab, int64_t vocab_start, int64_t ignore_index) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t i = first; i < tokens * vocab; i += stride) {
        int64_t token = i / vocab, j = i % vocab;
        float g = target[token] == ignore_index ? 0.0f : grad_loss[token];
        float p = expf(to_float(logits[i]) - logsumexp[token]);
        from_float(g * (p - (j == target[token] - vocab_start ? 1.0f : 0.0f)), &grad_logits[i]);
    }
}

template <typename T>
__device__ __forceinline__ void backward_one(T* out, const T* row, int64_t j, int64_t local,
                                             float lse, float g) {
    from_float(g * (expf(to_float(row[j]) - lse) - (j == local ? 1.0f : 0.0f)), &out[j]);
}

// Backward, version 2: a block per token, so that no thread divides; 16-byte accesses.
template <typename T>
__device__ void backward2(T* grad_logits, const T* logits, const int64_t* target,
                          const float* logsumexp, const float* grad_loss, int64_t tokens,
                          int64_t vocab, int64_t vocab_start, int64_t ignore_index) {
    constexpr int width = 16 / sizeof(T);
    for (int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
        const T* row = logits + token * vocab;
        T* out = grad_logits + token * vocab;
        int64_t local = target[token] - vocab_start;
        float lse = logsumexp[token];
        float g = target[token] == ignore_index ? 0.0f : grad_loss[token];
        Cut<T> cut(row, vocab);
        if ((uintptr_t)(out + cut.head) % 16 != 0) {  // in and out lie differently
            for (int64_t j = threadIdx.x; j < vocab; j += blockDim.x)
                backward_one(out, row, j, local, lse, g);
            continue;
        }
        for (int64_t j = threadIdx.x; j < cut.head; j += blockDim.x)
            backward_one(out, row, j, local, lse, g);
        for (int64_t i = threadIdx.x; i < cut.packs; i += blockDim.x) {
            int64_t at = cut.head + i * width;
            Pack<T> pack = *reinterpret_cast<const Pack<T>*>(row + at);
#pragma unroll
            for (int j = 0; j < width; j++) {
                float p = expf(to_float(pack.item[j]) - lse);
                from_float(g * (p - (at + j == local ? 1.0f : 0.0f)), &pack.item[j]);
            }
            *reinterpret_cast<Pack<T>*>(out + at) = pack;
        }
        for (int64_t j = cut.tail + threadIdx.x; j < vocab; j += blockDim.x)
            backward_one(out, row, j, local, lse, g);
    }
}
// END SOLUTION

// What is launched for both types.
template <typename T>
__device__ void vocab_cross_entropy_forward(float* row_max, float* sum_exp, float* target_logit,
                                            const T* logits, const int64_t* target,
                                            int64_t tokens, int64_t vocab, int64_t vocab_start) {
    // BEGIN SOLUTION
    forward2(row_max, sum_exp, target_logit, logits, target, tokens, vocab, vocab_start);
    // END SOLUTION
}

template <typename T>
__device__ void vocab_cross_entropy_backward(T* grad_logits, const T* logits,
                                             const int64_t* target, const float* logsumexp,
                                             const float* grad_loss, int64_t tokens,
                                             int64_t vocab, int64_t vocab_start,
                                             int64_t ignore_index) {
    // BEGIN SOLUTION
    backward2(grad_logits, logits, target, logsumexp, grad_loss, tokens, vocab, vocab_start,
              ignore_index);
    // END SOLUTION
}

extern "C" __global__ void vocab_cross_entropy_forward_fp32(
    float* row_max, float* sum_exp, float* target_logit, const float* logits,
    const int64_t* target, int64_t tokens, int64_t vocab, int64_t vocab_start) {
    vocab_cross_entropy_forward(row_max, sum_exp, target_logit, logits, target, tokens, vocab,
                                vocab_start);
}

extern "C" __global__ void vocab_cross_entropy_forward_bf16(
    float* row_max, float* sum_exp, float* target_logit, const __nv_bfloat16* logits,
    const int64_t* target, int64_t tokens, int64_t vocab, int64_t vocab_start) {
    vocab_cross_entropy_forward(row_max, sum_exp, target_logit, logits, target, tokens, vocab,
                                vocab_start);
}

extern "C" __global__ void vocab_cross_entropy_backward_fp32(
    float* grad_logits, const float* logits, const int64_t* target, const float* logsumexp,
    const float* grad_loss, int64_t tokens, int64_t vocab, int64_t vocab_start,
    int64_t ignore_index) {
    vocab_cross_entropy_backward(grad_logits, logits, target, logsumexp, grad_loss, tokens, vocab,
                                 vocab_start, ignore_index);
}

extern "C" __global__ void vocab_cross_entropy_backward_bf16(
    __nv_bfloat16* grad_logits, const __nv_bfloat16* logits, const int64_t* target,
    const float* logsumexp, const float* grad_loss, int64_t tokens, int64_t vocab,
    int64_t vocab_start, int64_t ignore_index) {
    vocab_cross_entropy_backward(grad_logits, logits, target, logsumexp, grad_loss, tokens, vocab,
                                 vocab_start, ignore_index);
}
