#include "cpu_module.h"

#include <dlfcn.h>

#include <chrono>
#include <stdexcept>

#include "../include/simt.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace launcher {

Arguments::Arguments(const Launch& launch) : values_(launch.kinds.size()) {
    for (std::size_t i = 0; i < launch.kinds.size(); i++) {
        values_[i].bits = 0;
        if (launch.kinds[i] == 'p')
            values_[i].bits =
                launch.buffers.at(static_cast<std::size_t>(launch.integers[i])).address;
        else if (launch.kinds[i] == 'i')
            values_[i].integer = launch.integers[i];
        else
            values_[i].real = static_cast<float>(launch.reals[i]);
        pointers_.push_back(&values_[i]);
    }
}

CpuModule::CpuModule(const std::string& path, const Variables& shared, const Variables& device)
    : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(std::string("cannot load: ") + dlerror());
    int version = *static_cast<const int*>(symbol("simt_version"));
    if (version != SIMT_INTERFACE_VERSION)
        throw std::runtime_error(path + " was built by another version of the kit");
    launch_ = reinterpret_cast<int (*)(const SimtLaunch*, SimtFault*)>(symbol("simt_launch"));
    const SimtEntry* entries = static_cast<const SimtEntry*>(symbol("simt_entries"));
    int count = *static_cast<const int*>(symbol("simt_entry_count"));
    for (int i = 0; i < count; i++) entries_[entries[i].name] = {i, entries[i].kinds};
    shared_ = plain(shared);
    device_ = plain(device);
}

std::vector<SimtVariable> CpuModule::plain(const Variables& variables) {
    std::vector<SimtVariable> list;
    for (const auto& [name, offset, nbytes] : variables) {
        names_.push_back(name);
        list.push_back({names_.back().c_str(), offset, nbytes});
    }
    return list;
}

CpuModule::~CpuModule() { dlclose(handle_); }

void* CpuModule::symbol(const char* name) const {
    void* address = dlsym(handle_, name);
    if (address == nullptr) throw std::runtime_error(std::string("no kernel build: ") + dlerror());
    return address;
}

std::map<std::string, std::string> CpuModule::kernels() const {
    std::map<std::string, std::string> kinds;
    for (const auto& [name, entry] : entries_) kinds[name] = entry.second;
    return kinds;
}

Outcome CpuModule::launch(const Launch& launch, bool) {
    auto found = entries_.find(launch.kernel);
    if (found == entries_.end()) throw std::runtime_error("no kernel " + launch.kernel);
    if (found->second.second != launch.kinds)
        throw std::runtime_error(launch.kernel + " takes parameters of kinds " +
                                 found->second.second + ", was given " + launch.kinds);
    std::uint64_t threads = 1;
    for (std::uint32_t each : launch.block) threads *= each;
    if (threads == 0 || threads > 1024 || launch.block.at(2) > 64)
        throw std::runtime_error("a block has 1 to 1024 threads, at most 64 in z");
    std::uint64_t blocks = 1;
    for (std::uint32_t each : launch.grid) blocks *= each;
    if (blocks == 0 || launch.grid.at(0) > 0x7fffffffu || launch.grid.at(1) > 65535 ||
        launch.grid.at(2) > 65535)
        throw std::runtime_error("a grid has 1 to 2^31 - 1 blocks in x, 65535 in y and z");
    if (launch.shared_bytes > 227u << 10)
        throw std::runtime_error("a block has at most 227 KiB of shared memory");

    Arguments arguments(launch);
    std::vector<SimtBuffer> buffers;
    for (const Buffer& buffer : launch.buffers) {
        std::int32_t role = buffer.role == "in"    ? SIMT_ROLE_IN
                            : buffer.role == "out" ? SIMT_ROLE_OUT
                                                   : SIMT_ROLE_INOUT;
        buffers.push_back({buffer.name.c_str(), reinterpret_cast<void*>(buffer.address),
                           static_cast<std::size_t>(buffer.nbytes), buffer.element, role});
    }
    std::vector<std::int32_t> which;
    for (std::size_t i = 0; i < launch.kinds.size(); i++)
        which.push_back(
            launch.kinds[i] == 'p' ? static_cast<std::int32_t>(launch.integers[i]) : -1);

    SimtLaunch plain{};
    plain.entry = found->second.first;
    for (int i = 0; i < 3; i++) {
        plain.grid[i] = launch.grid.at(static_cast<std::size_t>(i));
        plain.block[i] = launch.block.at(static_cast<std::size_t>(i));
    }
    plain.shared_bytes = launch.shared_bytes;
    plain.order = launch.order;
    plain.arguments = static_cast<std::int32_t>(which.size());
    plain.values = arguments.pointers();
    plain.buffer = which.data();
    plain.buffers = static_cast<std::int32_t>(buffers.size());
    plain.buffer_list = buffers.data();
    plain.shared_variables = static_cast<std::int32_t>(shared_.size());
    plain.shared_list = shared_.data();
    plain.device_variables = static_cast<std::int32_t>(device_.size());
    plain.device_list = device_.data();

    SimtFault fault{};
    auto begin = std::chrono::steady_clock::now();
    int kind = launch_(&plain, &fault);
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    Outcome outcome{seconds.count(), std::nullopt};
    if (kind != SIMT_OK) {
        Fault told{kind, fault.has_thread != 0, {fault.block, fault.block + 3},
                   {fault.thread, fault.thread + 3}, {}, fault.message};
        for (const SimtPlace& place : fault.place)
            told.places.push_back({place.pc, place.file, place.line});
        outcome.fault = told;
    }
    return outcome;
}

}  // namespace launcher
