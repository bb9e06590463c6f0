// Loads moments 16 bytes at a time from any address.
// TASK a3.adamw
// FAILS touches only its own memory
// SAYS `exp_avg` itself does not begin at a multiple of 16 bytes
template <typename T>
__device__ void adamw(T* param, const T* grad, float* exp_avg, float* exp_avg_sq, int64_t n,
                      const Hyper& h) {
    int64_t i = 4 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x);
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; i < n; i += 4 * stride) {
        Pack<float, 4> m = *reinterpret_cast<const Pack<float, 4>*>(exp_avg + i);  // HERE
        for (int64_t j = i; j < min(i + 4, n); j++) {
            float p = to_float(param[j]), v = exp_avg_sq[j];
            p = step(p, to_float(grad[j]), m.item[j - i], v, h);
            from_float(p, &param[j]);
            exp_avg[j] = m.item[j - i];
            exp_avg_sq[j] = v;
        }
    }
}
