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

// What is launched for both types.
template <typename T>
__device__ void vocab_cross_entropy_forward(float* row_max, float* sum_exp, float* target_logit,
                                            const T* logits, const int64_t* target,
                                            int64_t tokens, int64_t vocab, int64_t vocab_start) {
    // TODO(a4.vocab_cross_entropy)
}

template <typename T>
__device__ void vocab_cross_entropy_backward(T* grad_logits, const T* logits,
                                             const int64_t* target, const float* logsumexp,
                                             const float* grad_loss, int64_t tokens,
                                             int64_t vocab, int64_t vocab_start,
                                             int64_t ignore_index) {
    // TODO(a4.vocab_cross_entropy)
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
