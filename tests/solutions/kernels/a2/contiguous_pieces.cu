// No stride at all.
// TASK a2.reduce_add
// PASSES
template <typename T>
__device__ void reduce_add(T* dst, const T* src, int64_t n) {
    // Every thread owns one contiguous piece: slow on a GPU, but right.
    int64_t threads = (int64_t)gridDim.x * blockDim.x;
    int64_t piece = (n + threads - 1) / threads;
    int64_t begin = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * piece;
    for (int64_t i = begin; i < min(begin + piece, n); i++) dst[i] = add(dst[i], __ldg(&src[i]));
}
