// A shuffle inside a loop that not all lanes run as often.
// TASK a5.layer_norm
// FAILS touches only its own memory
// SAYS not all lanes of its mask take
template <typename T>
__device__ void layer_norm_forward(T* out, float* mean, float* rstd, const T* input,
                                   const T* weight, const T* bias, int64_t rows, int64_t hidden,
                                   float eps) {
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float sum = 0.0f;
        for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
            float x = to_float(input[row * hidden + j]);
            x += __shfl_xor_sync(0xffffffffu, x, 1);  // HERE
            sum += x / 2;
        }
        __shared__ float total;
        if (threadIdx.x == 0) total = 0.0f;
        __syncthreads();
        atomicAdd(&total, sum);
        __syncthreads();
        if (threadIdx.x == 0) mean[row] = total / hidden;
        __syncthreads();
    }
}
