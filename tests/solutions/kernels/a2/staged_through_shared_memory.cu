// Goes through shared memory, mirrored, with both barriers.
// TASK a2.reduce_add
// PASSES
template <typename T>
__device__ void reduce_add(T* dst, const T* src, int64_t n) {
    __shared__ T stage[512];
    for (int64_t low = (int64_t)blockIdx.x * blockDim.x; low < n;
         low += (int64_t)gridDim.x * blockDim.x) {
        int64_t i = low + threadIdx.x;
        if (i < n) stage[threadIdx.x] = src[i];
        __syncthreads();
        int64_t mirrored = low + (blockDim.x - 1 - threadIdx.x);
        if (mirrored < n) dst[mirrored] = add(dst[mirrored], stage[blockDim.x - 1 - threadIdx.x]);
        __syncthreads();
    }
}
