#include "cuda_driver.h"

#include <dlfcn.h>

#include <stdexcept>

namespace launcher {
namespace {

template <typename F> bool find(void* library, const char* name, F* function) {
    *function = reinterpret_cast<F>(dlsym(library, name));
    return *function != nullptr;
}

const char* load(CudaDriver* driver) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return "no CUDA driver here (libcuda.so.1 was not found)";
    bool complete =
        find(library, "cuInit", &driver->Init) &&
        find(library, "cuDeviceGetCount", &driver->DeviceGetCount) &&
        find(library, "cuDeviceGet", &driver->DeviceGet) &&
        find(library, "cuDeviceGetName", &driver->DeviceGetName) &&
        find(library, "cuDeviceGetAttribute", &driver->DeviceGetAttribute) &&
        find(library, "cuDevicePrimaryCtxRetain", &driver->DevicePrimaryCtxRetain) &&
        find(library, "cuCtxPushCurrent_v2", &driver->CtxPushCurrent) &&
        find(library, "cuCtxPopCurrent_v2", &driver->CtxPopCurrent) &&
        find(library, "cuModuleLoadData", &driver->ModuleLoadData) &&
        find(library, "cuModuleUnload", &driver->ModuleUnload) &&
        find(library, "cuModuleGetFunction", &driver->ModuleGetFunction) &&
        find(library, "cuFuncSetAttribute", &driver->FuncSetAttribute) &&
        find(library, "cuLaunchKernel", &driver->LaunchKernel) &&
        find(library, "cuEventCreate", &driver->EventCreate) &&
        find(library, "cuEventRecord", &driver->EventRecord) &&
        find(library, "cuEventSynchronize", &driver->EventSynchronize) &&
        find(library, "cuEventElapsedTime", &driver->EventElapsedTime) &&
        find(library, "cuEventDestroy_v2", &driver->EventDestroy) &&
        find(library, "cuGetErrorName", &driver->GetErrorName);
    if (!complete) return "the CUDA driver is too old (a function is missing from libcuda.so.1)";
    CUresult result = driver->Init(0);
    if (result == 100) return "a CUDA driver, but no GPU";  // CUDA_ERROR_NO_DEVICE
    if (result != 0) return "the CUDA driver is there but cannot start (cuInit failed)";
    int count = 0;
    if (driver->DeviceGetCount(&count) != 0 || count == 0) return "a CUDA driver, but no GPU";
    return nullptr;
}

}  // namespace

const CudaDriver* cuda_driver(std::string* reason) {
    static CudaDriver driver{};
    static const char* const problem = load(&driver);
    if (problem != nullptr && reason != nullptr) *reason = problem;
    return problem == nullptr ? &driver : nullptr;
}

void check_cuda(const CudaDriver& driver, CUresult result, const char* call) {
    if (result == 0) return;
    const char* name = nullptr;
    driver.GetErrorName(result, &name);
    throw std::runtime_error(std::string(call) + ": " + (name ? name : "unknown CUDA error"));
}

}  // namespace launcher
