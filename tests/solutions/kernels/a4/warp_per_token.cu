// A warp per token, two passes, sums to lane 0.
// TASK a4.vocab_cross_entropy
// PASSES
template <typename T>
__device__ void vocab_cross_entropy_forward(float* row_max, float* sum_exp, float* target_logit,
                                            const T* logits, const int64_t* target,
                                            int64_t tokens, int64_t vocab, int64_t vocab_start) {
    int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32);
    int64_t token = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    for (; token < tokens; token += warps) {
        float most = -INFINITY, sum = 0.0f;
        for (int64_t j = threadIdx.x % 32; j < vocab; j += 32)
            most = fmaxf(most, to_float(logits[token * vocab + j]));
        for (int lanes = 1; lanes < 32; lanes *= 2)
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
        for (int64_t j = threadIdx.x % 32; j < vocab; j += 32)
            sum += expf(to_float(logits[token * vocab + j]) - most);
        for (int lanes = 16; lanes > 0; lanes /= 2)
            sum += __shfl_down_sync(0xffffffffu, sum, lanes);
        if (threadIdx.x % 32 != 0) continue;
        row_max[token] = most;
        sum_exp[token] = sum;
        int64_t local = target[token] - vocab_start;
        target_logit[token] =
            0 <= local && local < vocab ? to_float(logits[token * vocab + local]) : 0.0f;
    }
}
