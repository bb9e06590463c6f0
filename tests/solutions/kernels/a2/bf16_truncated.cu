// Cuts the lower half of the float off instead of rounding.
// TASK a2.reduce_add
// FAILS adds bfloat16 in float
// SAYS lower half of the float sum is cut off
__device__ float sum(float a, float b) { return a + b; }
__device__ __nv_bfloat16 sum(__nv_bfloat16 a, __nv_bfloat16 b) {
    unsigned bits = __float_as_uint(__bfloat162float(a) + __bfloat162float(b));
    return __float2bfloat16(__uint_as_float(bits & 0xffff0000u));
}
template <typename T>
__device__ void reduce_add(T* dst, const T* src, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; i < n; i += stride) dst[i] = sum(dst[i], src[i]);
}
