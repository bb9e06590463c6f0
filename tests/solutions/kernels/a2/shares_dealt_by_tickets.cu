// Blocks take the next share by a ticket; the last to leave sets the counters back.
// TASK a2.reduce_add
// PASSES
__device__ unsigned long long next_share;
__device__ unsigned left_so_far;
template <typename T>
__device__ void reduce_add(T* dst, const T* src, int64_t n) {
    __shared__ int64_t low;
    for (;;) {
        if (threadIdx.x == 0)
            low = (int64_t)atomicAdd(&next_share, (unsigned long long)blockDim.x);
        __syncthreads();
        if (low >= n) break;
        int64_t i = low + threadIdx.x;
        if (i < n) dst[i] = add(dst[i], src[i]);
        __syncthreads();
    }
    if (threadIdx.x != 0) return;
    __threadfence();
    if (atomicAdd(&left_so_far, 1u) == gridDim.x - 1) {
        left_so_far = 0;
        next_share = 0;
    }
}
