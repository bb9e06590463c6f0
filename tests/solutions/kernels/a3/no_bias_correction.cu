// Forgets the bias correction.
// TASK a3.adamw
// FAILS steps float parameters
// SAYS bias is not corrected
template <typename T>
__device__ void adamw(T* param, const T* grad, float* exp_avg, float* exp_avg_sq, int64_t n,
                      Hyper h) {
    h.bias_correction1 = h.bias_correction2 = 1.0f;
    adamw1(param, grad, exp_avg, exp_avg_sq, 0, n, h);
}
