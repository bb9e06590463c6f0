// Threads without a token leave before the barrier.
// TASK a4.vocab_cross_entropy
// FAILS touches only its own memory
// SAYS some threads return, and the others wait for them
template <typename T>
__device__ void vocab_cross_entropy_forward(float* row_max, float* sum_exp, float* target_logit,
                                            const T* logits, const int64_t* target,
                                            int64_t tokens, int64_t vocab, int64_t vocab_start) {
    __shared__ float most[512];
    int64_t token = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (token >= tokens && tokens > 0) return;
    most[threadIdx.x] = 0.0f;
    __syncthreads();  // HERE
    forward1(row_max, sum_exp, target_logit, logits, target, tokens, vocab, vocab_start);
}
