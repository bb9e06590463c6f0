// A shared library made from a kernels.cu and the SIMT runtime.
#pragma once

#include <memory>
#include <tuple>

#include "interface.h"
#include <deque>

#include "module.h"

namespace launcher {

class CpuModule : public Module {
  public:
    // Each variable as (name, offset, nbytes). shared: offsets are those in the thread-local
    // segment. device: from the start of the module.
    using Variables = std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t>>;
    CpuModule(const std::string& path, const Variables& shared, const Variables& device);
    ~CpuModule() override;
    CpuModule(const CpuModule&) = delete;
    CpuModule& operator=(const CpuModule&) = delete;
    std::map<std::string, std::string> kernels() const override;
    Outcome launch(const Launch& launch, bool timed) override;

  private:
    void* symbol(const char* name) const;
    void* handle_;
    std::vector<SimtVariable> plain(const Variables& variables);
    std::deque<std::string> names_;  // which never move
    std::vector<SimtVariable> shared_, device_;
    std::map<std::string, std::pair<int, std::string>> entries_;  // index, kinds
    int (*launch_)(const SimtLaunch*, SimtFault*);
};

}  // namespace launcher
