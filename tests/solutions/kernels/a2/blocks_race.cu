// The same, as checked mode sees it: two blocks change one element.
// TASK a2.reduce_add
// FAILS touches only its own memory
// SAYS two blocks take the same element of `dst`
template <typename T>
__device__ void reduce_add(T* dst, const T* src, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < n; i += blockDim.x) dst[i] = add(dst[i], src[i]);  // HERE
}
