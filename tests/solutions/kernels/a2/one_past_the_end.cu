// The loop runs to n inclusive.
// TASK a2.reduce_add
// FAILS touches only its own memory
// SAYS the first element past its end
template <typename T>
__device__ void reduce_add(T* dst, const T* src, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; i <= n; i += stride) dst[i] = add(dst[i], src[i]);  // HERE
}
