// A cubin in the primary context of a device, the one that torch uses too.
#pragma once

#include "cuda_driver.h"
#include "module.h"

namespace launcher {

class CudaModule : public Module {
  public:
    CudaModule(const std::string& cubin, int device);
    ~CudaModule() override;
    CudaModule(const CudaModule&) = delete;
    CudaModule& operator=(const CudaModule&) = delete;
    std::map<std::string, std::string> kernels() const override { return {}; }
    Outcome launch(const Launch& launch, bool timed) override;

  private:
    CUfunction function(const std::string& name);
    const CudaDriver* driver_;
    CUcontext context_ = nullptr;
    CUmodule module_ = nullptr;
    std::map<std::string, CUfunction> functions_;
};

// name, multiprocessors, compute capability of a device.
struct DeviceInfo {
    std::string name;
    int multiprocessors, major, minor;
};
DeviceInfo device_info(int device);

}  // namespace launcher
