// Takes every address for a multiple of 16.
// TASK a2.reduce_add
// FAILS touches only its own memory
// SAYS `dst` itself does not begin at a multiple of 16 bytes
template <typename T>
__device__ void reduce_add(T* dst, const T* src, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    constexpr int width = 16 / sizeof(T);
    for (int64_t p = i; p < n / width; p += stride) {
        Pack<T> a = reinterpret_cast<Pack<T>*>(dst)[p];  // HERE
        Pack<T> b = reinterpret_cast<const Pack<T>*>(src)[p];
        for (int j = 0; j < width; j++) a.item[j] = add(a.item[j], b.item[j]);
        reinterpret_cast<Pack<T>*>(dst)[p] = a;
    }
    for (int64_t j = n / width * width + i; j < n; j += stride) dst[j] = add(dst[j], src[j]);
}
