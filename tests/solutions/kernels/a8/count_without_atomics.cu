// Counts without an atomic.
// TASK a8.moe_permute
// FAILS touches only its own memory
// SAYS several threads add to one element of `counts`
__device__ void moe_permute_count(int* counts, const int* experts, int64_t assignments, int64_t) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (; i < assignments; i += stride)
        if (experts[i] >= 0) counts[experts[i]]++;  // HERE
}
