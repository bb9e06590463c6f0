// A contiguous share per warp, and the step written in another way.
// TASK a3.adamw
// PASSES
template <typename T>
__device__ void adamw(T* param, const T* grad, float* exp_avg, float* exp_avg_sq, int64_t n,
                      const Hyper& h) {
    int64_t warp = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32);
    int64_t share = (n + warps - 1) / warps;
    for (int64_t i = warp * share + threadIdx.x % 32; i < min((warp + 1) * share, n); i += 32) {
        float p = to_float(param[i]), g = to_float(grad[i]), m = exp_avg[i], v = exp_avg_sq[i];
        m += (1.0f - h.beta1) * (g - m);
        v = fmaf(h.beta2, v, (1.0f - h.beta2) * g * g);
        float scale = h.lr / h.bias_correction1;
        p = fmaf(-h.lr * h.weight_decay, p, p);
        from_float(p - scale * m / (sqrtf(v) * rsqrtf(h.bias_correction2) + h.eps), &param[i]);
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
    }
}
