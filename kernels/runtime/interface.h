// What the launcher says to a CPU build of a kernels.cu, and what it hears back. Plain C.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SIMT_INTERFACE_VERSION 4

enum SimtRole { SIMT_ROLE_IN, SIMT_ROLE_OUT, SIMT_ROLE_INOUT };

// A tensor that a kernel gets a pointer to. `element` is its element size in bytes.
struct SimtBuffer {
    const char* name;
    void* data;
    size_t nbytes;
    uint32_t element;
    int32_t role;
};

struct SimtLaunch {
    int32_t entry;  // index into simt_entries
    uint32_t grid[3], block[3];
    uint32_t shared_bytes;
    uint32_t order;  // 0: blocks and threads take turns in their order; else another one for each
    int32_t arguments;
    void** values;           // per argument, where its value lies
    const int32_t* buffer;   // per argument, the buffer it points to, or -1
    int32_t buffers;
    const struct SimtBuffer* buffer_list;
    int32_t shared_variables;
    const struct SimtVariable* shared_list;  // __shared__; offsets in the thread-local segment
    int32_t device_variables;
    const struct SimtVariable* device_list;  // __device__; offsets from the start of the module
};

// A variable of the file's, found by the launcher in the symbol table of the build.
struct SimtVariable {
    const char* name;
    uint64_t offset;
    uint64_t nbytes;
};

enum SimtFaultKind {
    SIMT_OK,
    SIMT_OUT_OF_BOUNDS,
    SIMT_MISALIGNED,
    SIMT_RACE,
    SIMT_BARRIER,
    SIMT_UNINITIALISED,
    SIMT_UNWRITTEN,
    SIMT_READ_ONLY,
    SIMT_ASSERT,
    SIMT_CRASH,
    SIMT_BAD_LAUNCH,
};

// A place in the student's code: a program counter (relative to the module) or file and line.
struct SimtPlace {
    uint64_t pc;
    char file[256];
    int32_t line;
};

// The first fault of a launch. `message` holds "{0}", "{1}" and "{2}" where the places belong: the
// access or wait, the other access or wait, and the barrier that both come after.
struct SimtFault {
    int32_t kind;
    int32_t has_thread;
    uint32_t block[3], thread[3];
    struct SimtPlace place[3];
    char message[2048];
};
