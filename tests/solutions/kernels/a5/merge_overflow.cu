// exp of the lse as they are.
// TASK a5.attention_merge
// FAILS merges float sides
// SAYS subtract the larger of the two first
template <typename T>
__device__ void attention_merge(T* out, float* lse, const T* out_a, const float* lse_a,
                                const T* out_b, const float* lse_b, int64_t rows, int64_t dim) {
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; row < rows; row += stride) {
        float a = expf(lse_a[row]), b = expf(lse_b[row]), both = logf(a + b);
        a /= expf(both), b /= expf(both);
        for (int64_t j = row * dim; j < (row + 1) * dim; j++)
            from_float(a * to_float(out_a[j]) + b * to_float(out_b[j]), &out[j]);
        lse[row] = both;
    }
}
