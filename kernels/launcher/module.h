// A loaded build of a kernels.cu, on the CPU or on a GPU, and how its kernels are launched.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace launcher {

struct Buffer {
    std::string name;
    std::uint64_t address;
    std::uint64_t nbytes;
    std::uint32_t element;  // bytes
    std::string role;       // "in", "out", "inout"
};

struct Launch {
    std::string kernel;
    std::vector<std::uint32_t> grid, block;  // x, y, z
    std::uint32_t shared_bytes;
    std::uint32_t order;  // of the simulated blocks and threads; 0: the natural one
    std::string kinds;                // per argument: p, i or f
    std::vector<std::int64_t> integers;  // per argument: the integer, or the index of its buffer
    std::vector<double> reals;        // per argument
    std::vector<Buffer> buffers;
    std::uint64_t stream;
};

struct Place {
    std::uint64_t pc;
    std::string file;
    int line;
};

struct Fault {
    int kind;
    bool has_thread;
    std::vector<std::uint32_t> block, thread;
    std::vector<Place> places;
    std::string message;
};

struct Outcome {
    double seconds;
    std::optional<Fault> fault;
};

// Both kinds of module answer the same calls.
class Module {
  public:
    virtual ~Module() = default;
    // name -> kinds of its parameters, as far as the build knows them.
    virtual std::map<std::string, std::string> kernels() const = 0;
    // Launches and waits for the end when `timed`; throws std::runtime_error for a wrong launch.
    virtual Outcome launch(const Launch& launch, bool timed) = 0;
};

// Values of the arguments as cuLaunchKernel and the CPU build read them: one pointer to each.
class Arguments {
  public:
    explicit Arguments(const Launch& launch);
    void** pointers() { return pointers_.data(); }

  private:
    union Value {
        std::uint64_t bits;
        std::int64_t integer;
        float real;
    };
    std::vector<Value> values_;
    std::vector<void*> pointers_;
};

}  // namespace launcher
