// Goes through memory that all blocks share, where each needs its own.
// TASK a2.reduce_add
// FAILS touches only its own memory
// SAYS `space` is one variable for all blocks
__device__ float4 space[256];
template <typename T>
__device__ void reduce_add(T* dst, const T* src, int64_t n) {
    T* scratch = reinterpret_cast<T*>(space);
    for (int64_t low = (int64_t)blockIdx.x * blockDim.x; low < n;
         low += (int64_t)gridDim.x * blockDim.x) {
        int64_t i = low + threadIdx.x;
        if (i < n) scratch[threadIdx.x] = src[i];  // HERE
        __syncthreads();
        int mirrored = blockDim.x - 1 - threadIdx.x;
        if (low + mirrored < n)
            dst[low + mirrored] = add(dst[low + mirrored], scratch[mirrored]);
        __syncthreads();
    }
}
