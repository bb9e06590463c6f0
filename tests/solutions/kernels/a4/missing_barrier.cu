// Warps' parts are read before the other warps have written them.
// TASK a4.vocab_cross_entropy
// FAILS touches only its own memory
// SAYS reads what other threads write to `part` at line
template <typename T>
__device__ void vocab_cross_entropy_forward(float* row_max, float* sum_exp, float* target_logit,
                                            const T* logits, const int64_t* target,
                                            int64_t tokens, int64_t vocab, int64_t vocab_start) {
    __shared__ Running part[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
        Running mine = merge_warp(fold_row(logits + token * vocab, vocab));
        if (lane == 0) part[warp] = mine;  // HERE
        if (threadIdx.x == 0) {
            Running all = part[0];
            for (int w = 1; w < warps; w++) all = merge(all, part[w]);
            int64_t local = target[token] - vocab_start;
            row_max[token] = all.most;
            sum_exp[token] = all.sum;
            target_logit[token] =
                local >= 0 && local < vocab ? to_float(logits[token * vocab + local]) : 0.0f;
        }
        __syncthreads();
    }
}
