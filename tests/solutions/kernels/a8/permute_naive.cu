// The quadratic positions and single elements.
// TASK a8.moe_permute
// PASSES
__device__ void moe_permute_count(int* counts, const int* experts, int64_t assignments, int64_t) {
    count1(counts, experts, assignments);
}

__device__ void moe_permute_position(int* position, const int* experts, const int* begin,
                             int64_t assignments, int64_t num_experts) {
    if (num_experts > 0) position1(position, experts, begin, assignments);
}

template <typename T>
__device__ void moe_permute(T* rows, const T* tokens, const int* position, int64_t assignments,
                            int64_t k, int64_t hidden) {
    permute1(rows, tokens, position, assignments, k, hidden);
}
