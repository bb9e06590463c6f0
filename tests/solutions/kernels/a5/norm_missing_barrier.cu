// The second sum overwrites the parts of the first, which others still read.
// TASK a5.layer_norm
// FAILS touches only its own memory
// SAYS puts new values into `part` while other threads still read the old ones
template <typename T>
__device__ void layer_norm_forward(T* out, float* mean, float* rstd, const T* input,
                                   const T* weight, const T* bias, int64_t rows, int64_t hidden,
                                   float eps) {
    __shared__ float part[32];
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float sum = 0.0f;
        for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x)
            sum += to_float(input[row * hidden + j]);
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
        __syncthreads();
        float m = 0.0f;
        for (int w = 0; w < (int)blockDim.x / 32; w++) m += part[w] / hidden;
        float squares = 0.0f;
        for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x)
            squares += (to_float(input[row * hidden + j]) - m) *
                       (to_float(input[row * hidden + j]) - m);
        squares = warp_sum(squares);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = squares;  // HERE
        __syncthreads();
        float r = 0.0f;
        for (int w = 0; w < (int)blockDim.x / 32; w++) r += part[w] / hidden;
        r = rsqrtf(r + eps);
        __syncthreads();
        for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x)
            from_float((to_float(input[row * hidden + j]) - m) * r * to_float(weight[j]) +
                           to_float(bias[j]), &out[row * hidden + j]);
        if (threadIdx.x == 0) {
            mean[row] = m;
            rstd[row] = r;
        }
    }
}
