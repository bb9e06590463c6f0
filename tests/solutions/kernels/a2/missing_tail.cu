// Whole packs only: the last n mod width elements are left out.
// TASK a2.reduce_add
// FAILS adds every float
// SAYS the tail is left out (1 of 5 elements)
template <typename T>
__device__ void reduce_add(T* dst, const T* src, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    constexpr int width = 16 / sizeof(T);
    for (; i < n / width; i += stride)
        for (int64_t j = i * width; j < (i + 1) * width; j++) dst[j] = add(dst[j], src[j]);
}
