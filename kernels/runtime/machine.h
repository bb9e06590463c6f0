// The simulated processor: one block at a time, its threads as suspended contexts.
#pragma once

#include <setjmp.h>

#include "context.h"
#include "interface.h"
#include "../include/simt.h"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace simt {

constexpr int kMaxThreads = 1024;
constexpr int kWarp = 32;
constexpr size_t kStack = 256 << 10;

enum class State : uint8_t { kReady, kBarrier, kWarpOperation, kActiveMask, kDone };

struct Site {
    const char* file;
    int line;
};

// When a thread made its accesses before it seen; the last barrier and __syncwarp before that.
struct Fence {
    uint32_t time, barrier, warp;
};

struct Region;
// A read of what others change by atomics at the same time: a race, but where atomicCAS follows.
struct EarlyRead {
    const Region* region;
    size_t cell, cells;
    uint64_t pc;
    uint32_t other_time, other_pc;
    uint16_t other;
};
constexpr int kEarlyReads = 4;

struct Thread {
    void* sp;
    char* stack;  // nullptr before the first and after the last instruction
    uint3 index;
    uint16_t id;  // x + y * Dx + z * Dx * Dy
    State state;
    int atomics;  // since it was resumed; spinning threads let others run
    Fence fence, block_fence;  // the last ones for the grid and for the block; time 0: none yet
    uint32_t fence_story, fence_told;  // what the first of them was last passed on by, and when
    EarlyRead early[kEarlyReads];
    int earlies;
    // Why it is suspended:
    Site site;
    const char* operation;
    unsigned mask;
    uint64_t value;
    int predicate;
    // What it got:
    uint64_t result[kWarp];
    unsigned lanes;
    int barrier_result;
};

struct WarpClock {
    uint32_t all;                    // time of the last __syncwarp of the whole warp
    uint32_t pair[kWarp][kWarp];     // and of the last one in which both lanes took part
};

struct Machine {
    const SimtLaunch* launch;
    const SimtEntry* entry;
    SimtFault* fault;
    void** values;
    bool checked;
    bool failed;
    uint3 grid, block;
    uint3 block_index;
    uint64_t block_number;
    int threads;
    uint64_t block_stride;  // between blocks that follow each other in time
    int alive;
    int at_barrier;
    SimtBarrier barrier_kind;
    int barrier_count, barrier_and, barrier_or;
    Thread* current;
    void* scheduler_sp;
    Thread thread[kMaxThreads];
    // Logical time: grows at every block, barrier and __syncwarp.
    uint32_t now, block_start, last_barrier;
    Site last_barrier_site;  // line 0: none in this block
    WarpClock warp[kMaxThreads / kWarp];
    bool atomics;  // of the launch, on global memory
    uint32_t dice;
};

extern Machine machine;

// End the launch with a fault. Never returns; `pc` is absolute, 0 when the site says it.
[[noreturn]] void fail(int kind, uint64_t pc, Site site, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
// The same, about a thread that is not the running one.
[[noreturn]] void fail_for(const Thread* thread, int kind, uint64_t pc, Site site,
                           const char* format, ...) __attribute__((format(printf, 5, 6)));
// Give the fault under construction its second place, and the barrier before both.
void second_place(uint64_t pc, Site site);
void barrier_place(Site site);
uint64_t module_base();
// "(3,0,0)" of a thread's number within its block, in one of a few static buffers.
const char* thread_name(int id);
const char* block_name(uint64_t number);
// Switch to the scheduler; comes back when this thread is ready again.
void suspend(State why);
// Before an atomic: a thread that spins lets the others run now and then, and in another order of
// the launch any thread may.
void take_turns();

// memory.cpp and shadow.cpp
void memory_begin_launch();
void memory_begin_block();
void memory_end_phase();          // at a barrier that completes and at the end of a block
void memory_end_launch(bool ok);  // copies results back, reports what was never written
void memory_note_fault();         // a fault: is an earlier uninitialised read its real cause?

// kCompare: what atomicCAS finds; that it then changes it is an access of its own.
enum class Access { kRead, kWrite, kAtomic, kVolatileRead, kVolatileWrite, kCompare };
void check_access(const void* address, size_t nbytes, Access access, uint64_t pc, Site site);
// "logits[7]": the element of a tensor that lies there; nullptr when none does.
const char* element_at(const void* address);

bool is_shared(const void* address);

// machine.cpp, for memory.cpp
bool on_current_stack(const void* address);
bool on_any_stack(const void* address, int* thread);

// barriers.cpp
void exit_thread(Thread* thread);
// No lane of the warp is ready: let those go on that ask who is here. Whether there were any.
bool answer_active_mask(int warp);
[[noreturn]] void report_deadlock();

}  // namespace simt
