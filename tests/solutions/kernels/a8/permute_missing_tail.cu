// Leaves the last hidden mod 4 columns out.
// TASK a8.moe_permute
// FAILS touches only its own memory
// SAYS the tail of a row of 33
template <typename T>
__device__ void moe_permute(T* rows, const T* tokens, const int* position, int64_t assignments,
                            int64_t k, int64_t hidden) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t width = hidden / 4 * 4;
    for (; i < assignments * width; i += stride) {
        int64_t a = i / width, j = i % width;
        if (position[a] >= 0) rows[position[a] * hidden + j] = tokens[a / k * hidden + j];
    }
}
