// Leaves the last hidden mod 8 columns out.
// TASK a8.moe_unpermute
// FAILS touches only its own memory
// SAYS the tail of a row of 33
template <typename T>
__device__ void moe_unpermute(T* out, const T* rows, const float* weights, const int* position,
                              int64_t tokens, int64_t k, int64_t hidden) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t width = hidden / 8 * 8;
    for (; i < tokens * width; i += stride) {
        int64_t token = i / width, j = i % width;
        float sum = 0.0f;
        for (int64_t a = token * k; a < (token + 1) * k; a++)
            if (position[a] >= 0) sum += weights[a] * to_float(rows[position[a] * hidden + j]);
        from_float(sum, &out[token * hidden + j]);
    }
}
