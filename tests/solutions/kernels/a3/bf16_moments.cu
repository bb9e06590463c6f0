// Accumulates the first moment in bfloat16.
// TASK a3.adamw
// FAILS steps float parameters
// SAYS the moment is rounded to bfloat16
template <typename T>
__device__ void adamw(T* param, const T* grad, float* exp_avg, float* exp_avg_sq, int64_t n,
                      const Hyper& h) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; i < n; i += stride) {
        float p = to_float(param[i]), g = to_float(grad[i]), m = exp_avg[i], v = exp_avg_sq[i];
        p = step(p, g, m, v, h);
        m = __bfloat162float(__float2bfloat16(m));
        from_float(p, &param[i]);
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
    }
}
