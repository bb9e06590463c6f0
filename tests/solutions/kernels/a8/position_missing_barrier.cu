// The next stretch overwrites counts that others still read.
// TASK a8.moe_permute
// FAILS touches only its own memory
// SAYS belongs to the next round of the loop
__device__ void moe_permute_position(int* position, const int* experts, const int* begin,
                             int64_t assignments, int64_t num_experts) {
    __shared__ int of_warp[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int64_t e = blockIdx.x; e < num_experts; e += gridDim.x) {
        int next = begin[e];
        for (int64_t low = 0; low < assignments; low += blockDim.x) {
            int64_t a = low + threadIdx.x;
            int expert = a < assignments ? experts[a] : -1;
            unsigned votes = __ballot_sync(0xffffffffu, expert == e);
            if (lane == 0) of_warp[warp] = __popc(votes);  // HERE
            __syncthreads();
            int before = __popc(votes & ((1u << lane) - 1u)), all = 0;
            for (int w = 0; w < warps; w++) {
                if (w < warp) before += of_warp[w];
                all += of_warp[w];
            }
            if (expert == e) position[a] = next + before;
            next += all;
        }
    }
    if (blockIdx.x != 0) return;
    for (int64_t a = threadIdx.x; a < assignments; a += blockDim.x)
        if (experts[a] < 0) position[a] = -1;
}
