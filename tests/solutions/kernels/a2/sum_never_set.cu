// A sum that begins with whatever its register holds.
// TASK a2.reduce_add
// FAILS touches only its own memory
// SAYS a local variable
template <typename T>
__device__ void reduce_add(T* dst, const T* src, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        T sum;
        sum = add(sum, src[i]);
        dst[i] = add(dst[i], sum);
    }
}
