// Leaves the last dim mod 4 columns out.
// TASK a5.attention_merge
// FAILS touches only its own memory
// SAYS the tail of a row of 33
template <typename T>
__device__ void attention_merge(T* out, float* lse, const T* out_a, const float* lse_a,
                                const T* out_b, const float* lse_b, int64_t rows, int64_t dim) {
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; row < rows; row += stride) {
        Weights w = weigh(lse_a[row], lse_b[row]);
        float a = w.a, b = w.b, both = w.lse;
        for (int64_t j = row * dim; j < row * dim + dim / 4 * 4; j++)
            from_float(a * to_float(out_a[j]) + b * to_float(out_b[j]), &out[j]);
        lse[row] = both;
    }
}
