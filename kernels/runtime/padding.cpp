// Room between the __device__ variables of a kernels.cu and those of the runtime, for what an
// unchecked launch writes past the end of them.
namespace simt {
extern char padding[64 << 10];
char padding[64 << 10];
}  // namespace simt
