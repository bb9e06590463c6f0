// A block per row; one thread weighs for all.
// TASK a5.attention_merge
// PASSES
template <typename T>
__device__ void attention_merge(T* out, float* lse, const T* out_a, const float* lse_a,
                                const T* out_b, const float* lse_b, int64_t rows, int64_t dim) {
    __shared__ Weights shared;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        if (threadIdx.x == 0) {
            shared = weigh(lse_a[row], lse_b[row]);
            lse[row] = shared.lse;
        }
        __syncthreads();
        Weights w = shared;
        for (int64_t j = row * dim + threadIdx.x; j < (row + 1) * dim; j += blockDim.x)
            from_float(w.a * to_float(out_a[j]) + w.b * to_float(out_b[j]), &out[j]);
        __syncthreads();
    }
}
