// Takes every row for aligned; those of odd vocabularies are not.
// TASK a4.vocab_cross_entropy
// FAILS touches only its own memory
// SAYS row 1 of `logits` does not begin at a multiple of 16 bytes
template <typename T>
__device__ void vocab_cross_entropy_forward(float* row_max, float* sum_exp, float* target_logit,
                                            const T* logits, const int64_t* target,
                                            int64_t tokens, int64_t vocab, int64_t vocab_start) {
    int64_t token = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; token < tokens; token += stride) {
        const T* row = logits + token * vocab;
        constexpr int width = 16 / sizeof(T);
        Running all = {-INFINITY, 0.0f};
        for (int64_t i = 0; i < vocab / width; i++) {
            Pack<T> pack = reinterpret_cast<const Pack<T>*>(row)[i];  // HERE
            for (int j = 0; j < width; j++) all = merge(all, {to_float(pack.item[j]), 1.0f});
        }
        for (int64_t j = vocab / width * width; j < vocab; j++)
            all = merge(all, {to_float(row[j]), 1.0f});
        int64_t local = target[token] - vocab_start;
        row_max[token] = all.most;
        sum_exp[token] = all.sum;
        target_logit[token] = local >= 0 && local < vocab ? to_float(row[local]) : 0.0f;
    }
}
