// Reads the input as (hidden, rows).
// TASK a5.layer_norm
// FAILS normalizes every row
// SAYS the input is read as (hidden, rows)
template <typename T>
__device__ void layer_norm_forward(T* out, float* mean, float* rstd, const T* input,
                                   const T* weight, const T* bias, int64_t rows, int64_t hidden,
                                   float eps) {
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; row < rows; row += stride) {
        float sum = 0.0f, squares = 0.0f;
        for (int64_t j = 0; j < hidden; j++) sum += to_float(input[j * rows + row]);
        float m = sum / hidden;
        for (int64_t j = 0; j < hidden; j++)
            squares += (to_float(input[j * rows + row]) - m) *
                       (to_float(input[j * rows + row]) - m);
        float r = rsqrtf(squares / hidden + eps);
        for (int64_t j = 0; j < hidden; j++) {
            float h = (to_float(input[row * hidden + j]) - m) * r;
            float y = h * to_float(weight[j]) + to_float(bias[j]);
            from_float(y, &out[row * hidden + j]);
        }
        mean[row] = m;
        rstd[row] = r;
    }
}
