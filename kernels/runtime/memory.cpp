// Checked mode's view of memory: which bytes exist. Buffers are copied into an arena with red zones
// between them; shared variables lie where the linker has put them.
#include "shadow.h"

#include <stdlib.h>
#include <sys/mman.h>

extern "C" thread_local char simt_shared_anchor[16];
extern "C" __attribute__((visibility("hidden"))) thread_local char simt_dynamic_shared[];

namespace simt {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kRedZone = 64 << 10;
constexpr size_t kMaxShared = 228 << 10;  // of a block, with 1 KiB that the system takes
constexpr size_t kMaxStatic = 48 << 10;

constexpr int kMaxBuffers = 62;
Region buffer[kMaxBuffers];
int buffers;
char* arena;
size_t arena_bytes;
uint8_t* page_owner;  // 1 + buffer index
void* values[64];
void* addresses[64];

constexpr int kMaxVariables = 4096;
Region shared[kMaxVariables];
bool used[kMaxVariables];  // in this launch
size_t used_bytes;         // of those that the file declares with a size
int shareds;
char *shared_low, *shared_high;

Region device[kMaxVariables];  // __device__ variables, and what is __constant__ but not const
int devices;
char* before_launch;  // what they held

unsigned log2_of(unsigned n) { return n >= 8 ? 3 : n >= 4 ? 2 : n >= 2 ? 1 : 0; }

void* reserve(size_t nbytes) {
    void* space = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) {
        fprintf(stderr, "simt: no memory for %zu bytes\n", nbytes);
        abort();
    }
    return space;
}

void give_cells(Region& region) {
    region.cell_bytes = ((region.nbytes >> region.shift) + 2) * sizeof(Cell);
    region.cells = (Cell*)reserve(region.cell_bytes);
}

[[noreturn]] void report_outside(const Region& region, const char* address, size_t nbytes,
                                 Access access, uint64_t pc) {
    long long width = 1LL << region.shift;
    long long offset = address - region.base;
    long long index = offset >= 0 ? offset / width : -((-offset + width - 1) / width);
    long long count = (long long)(region.nbytes >> region.shift);
    long long past = offset + (long long)nbytes - (long long)region.nbytes;
    char where[64];
    if (index >= 0 && index < count)
        snprintf(where, sizeof where, "the last %lld of them past its end", past);
    else
        snprintf(where, sizeof where, "%s", index < 0       ? "before its start"
                                            : index > count ? "past its end"
                                                            : "the first element past its end");
    fail(SIMT_OUT_OF_BOUNDS, pc, Site{},
         "%s %zu bytes at %s[%lld] at {0}, %s (it has %lld element%s of %lld bytes)",
         verb(access), nbytes, region.name, index, where, count, count == 1 ? "" : "s", width);
}

[[noreturn]] void report_wild(const char* address, size_t nbytes, Access access, uint64_t pc) {
    int other;
    if (on_any_stack(address, &other))
        fail(SIMT_OUT_OF_BOUNDS, pc, Site{}, "%s %zu bytes at {0} in local memory of thread %s",
             verb(access), nbytes, thread_name(other));
    const Region* nearest = nullptr;
    size_t distance = 0;
    for (int i = 0; i < buffers; i++) {
        const Region& region = buffer[i];
        size_t away = address < region.base ? (size_t)(region.base - address)
                                            : (size_t)(address - region.base) - region.nbytes;
        if (nearest == nullptr || away < distance) nearest = &region, distance = away;
    }
    if (nearest != nullptr && distance < (size_t)1 << 32)
        report_outside(*nearest, address, nbytes, access, pc);
    fail(SIMT_OUT_OF_BOUNDS, pc, Site{},
         "%s %zu bytes at address %p at {0}, in no tensor, shared or local memory",
         verb(access), nbytes, (const void*)address);
}

// The module: code and constants up to _DYNAMIC, variables from there on.
extern "C" const char __ehdr_start __attribute__((visibility("hidden")));
extern "C" const char _DYNAMIC[] __attribute__((visibility("hidden")));
extern "C" const char _end __attribute__((visibility("hidden")));
bool in_module(const char* address) { return address >= &__ehdr_start && address < &_end; }

void lay_out_device() {
    devices = 0;
    size_t total = 0;
    for (int i = 0; i < machine.launch->device_variables && devices < kMaxVariables; i++) {
        const SimtVariable& variable = machine.launch->device_list[i];
        Region& region = device[devices++];
        region = {variable.name, (char*)&__ehdr_start + variable.offset, variable.nbytes, 0,
                  SIMT_ROLE_INOUT, false, nullptr, 0, true};
        give_cells(region);
        total += region.nbytes;
    }
    before_launch = total == 0 ? nullptr : (char*)malloc(total);
    size_t at = 0;
    for (int i = 0; before_launch != nullptr && i < devices; at += device[i++].nbytes)
        memcpy(before_launch + at, device[i].base, device[i].nbytes);
}

// They outlive a launch, but not what a launch that fails has left in them.
void put_back_device(bool ok) {
    size_t at = 0;
    for (int i = 0; i < devices; at += device[i++].nbytes) {
        if (!ok && before_launch != nullptr)
            memcpy(device[i].base, before_launch + at, device[i].nbytes);
        munmap(device[i].cells, device[i].cell_bytes);
        device[i].cells = nullptr;
    }
    free(before_launch);
    before_launch = nullptr;
    devices = 0;
}

void touch_module(const char* address, size_t nbytes, Access access, uint64_t pc) {
    const Region* nearest = nullptr;
    for (int i = 0; i < devices; i++) {
        const Region& region = device[i];
        if (address < region.base) continue;
        size_t offset = (size_t)(address - region.base);
        if (offset < region.nbytes && nbytes <= region.nbytes - offset) {
            shadow_touch(region, offset, nbytes, access, pc);
            return;
        }
        if (nearest == nullptr || region.base > nearest->base) nearest = &region;
    }
    bool reads = access == Access::kRead || access == Access::kVolatileRead;
    // What a warp's lanes have brought along is read where it lies.
    bool brought = address >= (const char*)&machine && address < (const char*)(&machine + 1);
    if (reads && (brought || address < _DYNAMIC)) return;
    if (address < _DYNAMIC)
        fail(SIMT_READ_ONLY, pc, Site{}, "%s %zu bytes of a constant at {0}", verb(access), nbytes);
    if (nearest == nullptr)
        fail(SIMT_OUT_OF_BOUNDS, pc, Site{},
             "%s %zu bytes at {0}, in no tensor, shared or local memory", verb(access), nbytes);
    fail(SIMT_OUT_OF_BOUNDS, pc, Site{}, "%s %zu bytes at byte %zu of %s at {0}, which has %zu bytes",
         verb(access), nbytes, (size_t)(address - nearest->base), nearest->name, nearest->nbytes);
}

// What ptxas counts for a kernel is known here by what its launches touch.
void note_use(int which, uint64_t pc) {
    used[which] = true;
    if (shared[which].base == simt_dynamic_shared) return;
    used_bytes += shared[which].nbytes;
    if (used_bytes > kMaxStatic)
        fail(SIMT_BAD_LAUNCH, pc, Site{},
             "uses too much shared data (%zu bytes with %s at {0}, %zu at most)", used_bytes,
             shared[which].name, kMaxStatic);
    size_t both = used_bytes + machine.launch->shared_bytes;
    if (both > kMaxShared - 1024)
        fail(SIMT_BAD_LAUNCH, pc, Site{},
             "uses too much shared memory (%zu bytes with %s at {0} and what the launch asks for, "
             "%zu at most)", both, shared[which].name, kMaxShared - 1024);
}

void lay_out_shared() {
    memset(used, 0, sizeof used);
    used_bytes = 0;
    char* anchor = simt_shared_anchor;
    const SimtLaunch* launch = machine.launch;
    uint64_t anchor_offset = 0;
    for (int i = 0; i < launch->shared_variables; i++)
        if (strcmp(launch->shared_list[i].name, "simt_shared_anchor") == 0)
            anchor_offset = launch->shared_list[i].offset;
    shareds = 0;
    shared_low = shared_high = nullptr;
    for (int i = 0; i < launch->shared_variables && shareds < kMaxVariables; i++) {
        const SimtVariable& variable = launch->shared_list[i];
        bool dynamic = strcmp(variable.name, "simt_dynamic_shared") == 0;
        if (strcmp(variable.name, "simt_shared_anchor") == 0) continue;
        // "Is already constructed": a flag of the compiler's, which the 0xff of a new block sets.
        bool guard = strncmp(variable.name, "_ZGV", 4) == 0;
        size_t nbytes = dynamic ? launch->shared_bytes : variable.nbytes;
        char* base = anchor + (variable.offset - anchor_offset);
        Region& region = shared[shareds++];
        bool same = region.base == base && region.nbytes == nbytes && region.cells != nullptr;
        if (!same && region.cells != nullptr) munmap(region.cells, region.cell_bytes);
        Cell* cells = same ? region.cells : nullptr;
        size_t cell_bytes = region.cell_bytes;
        region = {dynamic ? "dynamic shared memory" : variable.name, base, nbytes, 0,
                  SIMT_ROLE_INOUT, true, cells, cell_bytes, true};
        if (guard) region.name = nullptr;
        if (!same && machine.checked && nbytes > 0) give_cells(region);
        if (same && machine.checked) memset(region.cells, 0, region.cell_bytes);
        char* end = base + (dynamic ? kMaxShared : nbytes);
        if (shared_low == nullptr || base < shared_low) shared_low = base;
        if (shared_high == nullptr || end > shared_high) shared_high = end;
    }
}

}  // namespace

void memory_begin_launch() {
    const SimtLaunch* launch = machine.launch;
    shadow_begin_launch();
    lay_out_shared();
    if (!machine.checked) return;
    lay_out_device();
    buffers = launch->buffers < kMaxBuffers ? launch->buffers : kMaxBuffers;
    size_t total = kRedZone;
    for (int i = 0; i < buffers; i++)
        total += (launch->buffer_list[i].nbytes + 2 * kPage) / kPage * kPage + kRedZone;
    arena_bytes = total;
    arena = (char*)reserve(total);
    page_owner = (uint8_t*)calloc(total / kPage + 1, 1);
    char* at = arena + kRedZone;
    for (int i = 0; i < buffers; i++) {
        const SimtBuffer& given = launch->buffer_list[i];
        // As far from a 256-byte boundary as the caller's tensor is.
        char* base = at + ((uintptr_t)given.data & 255u);
        buffer[i] = {given.name, base, given.nbytes, log2_of(given.element), given.role, false,
                     nullptr, 0, false};
        give_cells(buffer[i]);
        if (given.nbytes > 0) memcpy(base, given.data, given.nbytes);
        size_t span = (given.nbytes + 2 * kPage) / kPage * kPage;
        for (size_t page = 0; page < span / kPage; page++)
            page_owner[(size_t)(at - arena) / kPage + page] = (uint8_t)(i + 1);
        at += span + kRedZone;
    }
    for (int i = 0; i < launch->arguments; i++) {
        values[i] = launch->values[i];
        int32_t which = launch->buffer[i];
        if (which < 0) continue;
        char* given = *(char**)launch->values[i];
        addresses[i] = buffer[which].base + (given - (char*)launch->buffer_list[which].data);
        values[i] = &addresses[i];
    }
    machine.values = values;
}

void memory_begin_block() {
    // What a kernel finds there on a GPU is whatever the last block left: here, not-a-number.
    for (int i = 0; i < shareds; i++)
        if (shared[i].nbytes > 0) memset(shared[i].base, 0xff, shared[i].nbytes);
    if (!machine.checked) return;
    shadow_begin_block();
}

void memory_end_launch(bool ok) {
    if (!machine.checked) return;
    const SimtLaunch* launch = machine.launch;
    put_back_device(ok);
    for (int i = 0; i < buffers; i++) {
        Region& region = buffer[i];
        if (ok && region.role != SIMT_ROLE_IN && region.nbytes > 0)
            memcpy(launch->buffer_list[i].data, region.base, region.nbytes);
        size_t count = region.nbytes >> region.shift, begin = 0;
        while (begin < count && (region.cells[begin].flags & kWritten)) begin++;
        if (ok && region.role == SIMT_ROLE_OUT && begin < count &&
            machine.fault->kind == SIMT_OK) {
            size_t end = begin, missing = 0;
            while (end < count && !(region.cells[end].flags & kWritten)) end++;
            for (size_t j = begin; j < count; j++)
                missing += !(region.cells[j].flags & kWritten);
            SimtFault* fault = machine.fault;
            fault->kind = SIMT_UNWRITTEN;
            const char* which = missing == count                          ? ", all"
                                : end == count && missing == count - begin ? ", the last"
                                : begin == 0 && missing == end             ? ", the first"
                                                                           : "";
            char range[48];
            if (end == begin + 1) snprintf(range, sizeof range, "%zu", begin);
            else snprintf(range, sizeof range, "%zu:%zu", begin, end);
            snprintf(fault->message, sizeof fault->message,
                     "no thread has written %s[%s] (%zu of its %zu element%s%s)", region.name,
                     range, missing, count, count == 1 ? "" : "s", which);
        }
        munmap(region.cells, region.cell_bytes);
        region.cells = nullptr;
    }
    munmap(arena, arena_bytes);
    free(page_owner);
    arena = nullptr;
    page_owner = nullptr;
}

const char* element_at(const void* pointer) {
    const char* address = (const char*)pointer;
    if (arena == nullptr || (size_t)(address - arena) >= arena_bytes) return nullptr;
    int owner = page_owner[(size_t)(address - arena) / kPage];
    if (owner == 0) return nullptr;
    const Region& region = buffer[owner - 1];
    size_t offset = (size_t)(address - region.base);
    return offset < region.nbytes ? element_name(region, offset) : nullptr;
}

void check_access(const void* pointer, size_t nbytes, Access access, uint64_t pc, Site) {
    const char* address = (const char*)pointer;
    if (machine.current == nullptr) return;
    shadow_settle();
    if ((size_t)(address - arena) < arena_bytes) {
        int owner = page_owner[(size_t)(address - arena) / kPage];
        if (owner != 0) {
            const Region& region = buffer[owner - 1];
            size_t offset = (size_t)(address - region.base);
            if (offset < region.nbytes && nbytes <= region.nbytes - offset) {
                shadow_touch(region, offset, nbytes, access, pc);
                return;
            }
            report_outside(region, address, nbytes, access, pc);
        }
        report_wild(address, nbytes, access, pc);
    }
    if (on_current_stack(address)) return;
    if (address >= shared_low && address < shared_high) {
        for (int i = 0; i < shareds; i++) {
            const Region& region = shared[i];
            size_t offset = (size_t)(address - region.base);
            bool dynamic = region.base == simt_dynamic_shared;
            if (offset >= (dynamic ? kMaxShared : region.nbytes)) continue;
            if (region.name == nullptr) return;
            if (offset + nbytes > region.nbytes)
                fail(SIMT_OUT_OF_BOUNDS, pc, Site{},
                     "%s %zu bytes at byte %zu of %s at {0}, which has %zu bytes", verb(access),
                     nbytes, offset, region.name, region.nbytes);
            if (!used[i]) note_use(i, pc);
            shadow_touch(region, offset, nbytes, access, pc);
            return;
        }
        fail(SIMT_OUT_OF_BOUNDS, pc, Site{}, "%s %zu bytes at {0}, between two shared variables",
             verb(access), nbytes);
    }
    if (in_module(address)) touch_module(address, nbytes, access, pc);
    else report_wild(address, nbytes, access, pc);
}

bool is_shared(const void* address) {
    return (const char*)address >= shared_low && (const char*)address < shared_high;
}

}  // namespace simt

// Dynamic shared memory: every `extern __shared__ T name[]` is another name of it.
extern "C" {
__attribute__((visibility("hidden"), aligned(1024))) thread_local char
    simt_dynamic_shared[simt::kMaxShared];
}
