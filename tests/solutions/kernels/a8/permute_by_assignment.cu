// Takes the assignment's number for the token's.
// TASK a8.moe_permute
// FAILS touches only its own memory
// SAYS row 9 is taken, and tokens has 5
template <typename T>
__device__ void moe_permute(T* rows, const T* tokens, const int* position, int64_t assignments,
                            int64_t k, int64_t hidden) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; i < assignments * hidden; i += stride) {
        int64_t a = i / hidden, j = i % hidden;
        if (position[a] >= 0) rows[position[a] * hidden + j] = tokens[a * hidden + j];  // HERE
    }
}
