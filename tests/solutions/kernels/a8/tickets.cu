// Positions by tickets: whoever comes first.
// TASK a8.moe_permute
// FAILS finds stable positions
// SAYS any order
__device__ void moe_permute_position(int* position, const int* experts, const int* begin,
                             int64_t assignments, int64_t num_experts) {
    __shared__ int next;
    for (int64_t e = blockIdx.x; e < num_experts; e += gridDim.x) {
        if (threadIdx.x == 0) next = begin[e];
        __syncthreads();
        for (int64_t a = threadIdx.x; a < assignments; a += blockDim.x)
            if (experts[a] == e) position[a] = atomicAdd(&next, 1);
        __syncthreads();
    }
    if (blockIdx.x != 0) return;
    for (int64_t a = threadIdx.x; a < assignments; a += blockDim.x)
        if (experts[a] < 0) position[a] = -1;
}
