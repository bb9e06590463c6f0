// Reads the logits as (vocab, tokens).
// TASK a4.vocab_cross_entropy
// FAILS finds maximum
// SAYS the logits are read as (vocab, tokens)
template <typename T>
__device__ void vocab_cross_entropy_forward(float* row_max, float* sum_exp, float* target_logit,
                                            const T* logits, const int64_t* target,
                                            int64_t tokens, int64_t vocab, int64_t vocab_start) {
    int64_t token = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; token < tokens; token += stride) {
        float most = -INFINITY;
        float sum = 0.0f;
        for (int64_t j = 0; j < vocab; j++)
            most = fmaxf(most, to_float(logits[j * tokens + token]));
        for (int64_t j = 0; j < vocab; j++) {
            float x = to_float(logits[j * tokens + token]);
            sum += expf(x - most);
        }
        int64_t local = target[token] - vocab_start;
        row_max[token] = most;
        sum_exp[token] = sum;
        target_logit[token] =
            local >= 0 && local < vocab ? to_float(logits[token * vocab + local]) : 0.0f;
    }
}
