// A shared library made from a kernels.cu and the SIMT runtime.
#pragma once

#include <memory>
#include <tuple>

#include "interface.h"
#include "module.h"

namespace launcher {

class CpuModule : public Module {
  public:
    // shared: (name, offset, nbytes) of the variables in the thread-local segment.
    using Shared = std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t>>;
    CpuModule(const std::string& path, const Shared& shared);
    ~CpuModule() override;
    CpuModule(const CpuModule&) = delete;
    CpuModule& operator=(const CpuModule&) = delete;
    std::map<std::string, std::string> kernels() const override;
    Outcome launch(const Launch& launch, bool timed) override;

  private:
    void* symbol(const char* name) const;
    void* handle_;
    std::vector<std::string> names_;
    std::vector<SimtSharedVariable> shared_;
    std::map<std::string, std::pair<int, std::string>> entries_;  // index, kinds
    int (*launch_)(const SimtLaunch*, SimtFault*);
};

}  // namespace launcher
