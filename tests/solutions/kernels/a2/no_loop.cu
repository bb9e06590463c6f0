// One element per thread: right only when the grid is large enough.
// TASK a2.reduce_add
// FAILS adds every float
// SAYS elements from 32 on are left out: every thread of <<<1, 32>>>
template <typename T>
__device__ void reduce_add(T* dst, const T* src, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) dst[i] = add(dst[i], src[i]);
}
