// E[x^2] - E[x]^2 in float.
// TASK a5.layer_norm
// FAILS normalizes every row
// SAYS loses all digits
template <typename T>
__device__ void layer_norm_forward(T* out, float* mean, float* rstd, const T* input,
                                   const T* weight, const T* bias, int64_t rows, int64_t hidden,
                                   float eps) {
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; row < rows; row += stride) {
        float sum = 0.0f, squares = 0.0f;
        for (int64_t j = 0; j < hidden; j++) {
            float x = to_float(input[row * hidden + j]);
            sum += x;
            squares += x * x;
        }
        float m = sum / hidden, r = rsqrtf(fmaxf(squares / hidden - m * m, 0.0f) + eps);
        for (int64_t j = 0; j < hidden; j++) {
            float h = (to_float(input[row * hidden + j]) - m) * r;
            float y = h * to_float(weight[j]) + to_float(bias[j]);
            from_float(y, &out[row * hidden + j]);
        }
        mean[row] = m;
        rstd[row] = r;
    }
}
