// Several rows add to one column without an atomic.
// TASK a5.layer_norm
// FAILS touches only its own memory
// SAYS several threads add to one element of `grad_weight`
template <typename T>
__device__ void layer_norm_backward(T* grad_input, float* grad_weight, float* grad_bias,
                                    const T* grad_out, const T* input, const T* weight,
                                    const float* mean, const float* rstd, int64_t rows,
                                    int64_t hidden) {
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; row < rows; row += stride) {
        const T* x = input + row * hidden;
        const T* dy = grad_out + row * hidden;
        float m = mean[row], r = rstd[row], sum = 0.0f, dot = 0.0f;
        for (int64_t j = 0; j < hidden; j++) {
            float h = (to_float(x[j]) - m) * r, g = to_float(dy[j]), d = g * to_float(weight[j]);
            sum += d;
            dot += d * h;
            grad_weight[j] += g * h;  // HERE
            grad_bias[j] += g;
        }
        for (int64_t j = 0; j < hidden; j++) {
            float h = (to_float(x[j]) - m) * r, d = to_float(dy[j]) * to_float(weight[j]);
            from_float(r * (d - sum / hidden - h * dot / hidden), &grad_input[row * hidden + j]);
        }
    }
}
