// Ignored tokens get a gradient.
// TASK a4.vocab_cross_entropy
// FAILS gives every logit
// SAYS rows whose target is ignore_index get a gradient
template <typename T>
__device__ void vocab_cross_entropy_backward(T* grad_logits, const T* logits,
                                             const int64_t* target, const float* logsumexp,
                                             const float* grad_loss, int64_t tokens,
                                             int64_t vocab, int64_t vocab_start,
                                             int64_t ignore_index) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; i < tokens * vocab; i += stride) {
        int64_t token = i / vocab, j = i % vocab;
        float g = grad_loss[token];
        float p = expf(to_float(logits[i]) - logsumexp[token]);
        from_float(g * (p - (j == target[token] - vocab_start ? 1.0f : 0.0f)), &grad_logits[i]);
    }
}
