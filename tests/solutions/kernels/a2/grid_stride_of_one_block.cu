// Strides by the block instead of the grid: blocks overlap.
// TASK a2.reduce_add
// FAILS adds every float
// SAYS where the second block begins, elements are added more than once
template <typename T>
__device__ void reduce_add(T* dst, const T* src, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < n; i += blockDim.x) dst[i] = add(dst[i], src[i]);
}
