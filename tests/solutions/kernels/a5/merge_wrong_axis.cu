// Takes the column's number for the row's.
// TASK a5.attention_merge
// FAILS touches only its own memory
// SAYS this tensor has one element for each row
template <typename T>
__device__ void attention_merge(T* out, float* lse, const T* out_a, const float* lse_a,
                                const T* out_b, const float* lse_b, int64_t rows, int64_t dim) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; i < rows * dim; i += stride) {
        Weights w = weigh(lse_a[i % dim], lse_b[i % dim]);  // HERE
        from_float(w.a * to_float(out_a[i]) + w.b * to_float(out_b[i]), &out[i]);
        if (i % dim == 0) lse[i / dim] = w.lse;
    }
}
