#include "cuda_module.h"

#include <stdexcept>

namespace launcher {
namespace {

const CudaDriver* need_driver() {
    std::string reason;
    const CudaDriver* driver = cuda_driver(&reason);
    if (driver == nullptr) throw std::runtime_error(reason);
    return driver;
}

// Makes a context current for one scope; torch's own choice comes back afterwards.
class Current {
  public:
    Current(const CudaDriver& driver, CUcontext context) : driver_(driver) {
        check_cuda(driver, driver.CtxPushCurrent(context), "cuCtxPushCurrent");
    }
    ~Current() {
        CUcontext ignored;
        driver_.CtxPopCurrent(&ignored);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

  private:
    const CudaDriver& driver_;
};

class Event {
  public:
    explicit Event(const CudaDriver& driver) : driver_(driver) {
        check_cuda(driver, driver.EventCreate(&event_, 0), "cuEventCreate");
    }
    ~Event() { driver_.EventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    void record(CUstream stream) {
        check_cuda(driver_, driver_.EventRecord(event_, stream), "cuEventRecord");
    }
    CUevent get() const { return event_; }

  private:
    const CudaDriver& driver_;
    CUevent event_ = nullptr;
};

}  // namespace

CudaModule::CudaModule(const std::string& cubin, int device) : driver_(need_driver()) {
    CUdevice handle;
    check_cuda(*driver_, driver_->DeviceGet(&handle, device), "cuDeviceGet");
    check_cuda(*driver_, driver_->DevicePrimaryCtxRetain(&context_, handle),
               "cuDevicePrimaryCtxRetain");
    Current current(*driver_, context_);
    check_cuda(*driver_, driver_->ModuleLoadData(&module_, cubin.data()), "cuModuleLoadData");
}

CudaModule::~CudaModule() {
    // The context may be gone at interpreter exit; then the module went with it.
    if (driver_->CtxPushCurrent(context_) != 0) return;
    driver_->ModuleUnload(module_);
    CUcontext ignored;
    driver_->CtxPopCurrent(&ignored);
}

CUfunction CudaModule::function(const std::string& name) {
    auto found = functions_.find(name);
    if (found != functions_.end()) return found->second;
    CUfunction function;
    if (driver_->ModuleGetFunction(&function, module_, name.c_str()) != 0)
        throw std::runtime_error("no kernel " + name);
    return functions_[name] = function;
}

Outcome CudaModule::launch(const Launch& launch, bool timed) {
    Current current(*driver_, context_);
    CUfunction kernel = function(launch.kernel);
    if (launch.shared_bytes > 48u << 10)
        check_cuda(*driver_,
                   driver_->FuncSetAttribute(kernel, kMaxDynamicShared,
                                             static_cast<int>(launch.shared_bytes)),
                   "cuFuncSetAttribute");
    Arguments arguments(launch);
    CUstream stream = reinterpret_cast<CUstream>(launch.stream);
    auto start = [&] {
        check_cuda(*driver_,
                   driver_->LaunchKernel(kernel, launch.grid.at(0), launch.grid.at(1),
                                         launch.grid.at(2), launch.block.at(0), launch.block.at(1),
                                         launch.block.at(2), launch.shared_bytes, stream,
                                         arguments.pointers(), nullptr),
                   ("launch of " + launch.kernel).c_str());
    };
    if (!timed) {
        start();
        return {0.0, std::nullopt};
    }
    Event begin(*driver_), end(*driver_);
    begin.record(stream);
    start();
    end.record(stream);
    check_cuda(*driver_, driver_->EventSynchronize(end.get()), launch.kernel.c_str());
    float milliseconds = 0;
    check_cuda(*driver_, driver_->EventElapsedTime(&milliseconds, begin.get(), end.get()),
               "cuEventElapsedTime");
    return {milliseconds * 1e-3, std::nullopt};
}

DeviceInfo device_info(int device) {
    const CudaDriver* driver = need_driver();
    CUdevice handle;
    check_cuda(*driver, driver->DeviceGet(&handle, device), "cuDeviceGet");
    char name[256] = {};
    check_cuda(*driver, driver->DeviceGetName(name, sizeof name, handle), "cuDeviceGetName");
    DeviceInfo info{name, 0, 0, 0};
    driver->DeviceGetAttribute(&info.multiprocessors, kMultiprocessorCount, handle);
    driver->DeviceGetAttribute(&info.major, kComputeMajor, handle);
    driver->DeviceGetAttribute(&info.minor, kComputeMinor, handle);
    return info;
}

}  // namespace launcher
