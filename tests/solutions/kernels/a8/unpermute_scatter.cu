// A thread per choice adds to the token's row without an atomic.
// TASK a8.moe_unpermute
// FAILS touches only its own memory
// SAYS two threads change the same element of `out`
template <typename T>
__device__ void moe_unpermute(T* out, const T* rows, const float* weights, const int* position,
                              int64_t tokens, int64_t k, int64_t hidden) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t e = i; e < tokens * hidden; e += stride) from_float(0.0f, &out[e]);
    for (; i < tokens * k * hidden; i += stride) {
        int64_t a = i / hidden, j = i % hidden;
        if (position[a] < 0) continue;
        float term = weights[a] * to_float(rows[position[a] * hidden + j]);
        from_float(to_float(out[a / k * hidden + j]) + term, &out[a / k * hidden + j]);  // HERE
    }
}
