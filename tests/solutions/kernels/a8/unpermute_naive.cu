// A thread per element.
// TASK a8.moe_unpermute
// PASSES
template <typename T>
__device__ void moe_unpermute(T* out, const T* rows, const float* weights, const int* position,
                              int64_t tokens, int64_t k, int64_t hidden) {
    unpermute1(out, rows, weights, position, tokens, k, hidden);
}
