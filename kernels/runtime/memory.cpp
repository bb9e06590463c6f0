// Checked mode's view of memory: which bytes exist, who touched them last, and when.
//
// Buffers are copied into an arena with red zones between them; every element has a cell that
// remembers its last writer and its last two readers with the logical time of their access. Time
// grows at every block, barrier and __syncwarp, so "since then they have waited for each other"
// is one comparison.
#include "machine.h"

#include <stdlib.h>
#include <sys/mman.h>

extern "C" thread_local char simt_shared_anchor[16];
extern "C" __attribute__((visibility("hidden"))) thread_local char simt_dynamic_shared[];

namespace simt {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kRedZone = 64 << 10;
constexpr size_t kMaxShared = 228 << 10;
constexpr uint8_t kWritten = 1, kAtomicWrite = 2;

struct Cell {
    uint32_t write_time, read_time, read2_time;
    uint32_t write_pc, read_pc, read2_pc;  // relative to the module; 0: written by the host
    uint16_t writer, reader, reader2;
    uint16_t flags;
};

struct Region {
    const char* name;
    char* base;
    size_t nbytes;
    unsigned shift;  // log2 of the bytes that share a cell
    int role;
    bool shared;
    Cell* cells;
    size_t cell_bytes;
};

constexpr int kMaxBuffers = 62;
Region buffer[kMaxBuffers];
int buffers;
char* arena;
size_t arena_bytes;
uint8_t* page_owner;  // 1 + buffer index
void* values[64];
void* addresses[64];

constexpr int kMaxShared_ = 64;
Region shared[kMaxShared_];
int shareds;
char *shared_low, *shared_high;

// Start times of the blocks so far, to name the block of an old access.
struct BlockStart {
    uint32_t time;
    uint64_t number;
}* block_starts;
size_t blocks_started, block_capacity;

struct PendingRead {
    const Region* region;
    size_t cell;
    const Thread* thread;
    uint64_t pc;
} pending_read;  // the first uninitialised read of this phase

struct PendingWrite {
    bool active;
    const Region* region;
    char* address;
    size_t nbytes;
    char before[16];
    uint16_t other;
    uint32_t other_time, other_pc;
    uint64_t pc;
    uint16_t thread;
} pending_write;  // two threads write one place: a race only if they write different values

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

const char* element_name(const Region& region, size_t offset) {
    static char text[4][160];
    static int turn;
    char* name = text[turn++ & 3];
    unsigned width = 1u << region.shift;
    if (region.shared && region.shift == 0)
        snprintf(name, 160, "%s (shared, byte %zu)", region.name, offset);
    else
        snprintf(name, 160, "%s[%zu]%s", region.name, offset / width,
                 region.shared ? " (shared)" : "");
    return name;
}

const char* verb(Access access) {
    return access == Access::kRead ? "reads" : access == Access::kWrite ? "writes"
                                                                        : "atomically changes";
}

uint64_t block_of(uint32_t time) {
    size_t low = 0, high = blocks_started;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (block_starts[middle].time <= time) low = middle;
        else high = middle;
    }
    return block_starts[low].number;
}

// Whether an earlier access may have happened at the same time as one of the running thread.
bool concurrent(const Region& region, uint16_t other, uint32_t time) {
    const Machine& m = machine;
    if (time == 0) return false;
    if (time < m.block_start) {
        // Another block. Shared memory is fresh; global memory is ordered by fences and atomics.
        return !region.shared && !(m.fenced && m.block_atomic);
    }
    int me = m.current->id;
    if (other == me || time < m.last_barrier) return false;
    if (other / kWarp == me / kWarp) {
        const WarpClock& clock = m.warp[me / kWarp];
        if (time < clock.all || time < clock.pair[me % kWarp][other % kWarp]) return false;
    }
    return true;
}

[[noreturn]] void report_race(const Region& region, size_t offset, Access now, uint64_t pc,
                              const char* before, uint16_t other, uint32_t time,
                              uint32_t other_pc) {
    second_place(other_pc == 0 ? 0 : other_pc + 1 + module_base(), Site{});
    if (time < machine.block_start) {
        fail(SIMT_RACE, pc, Site{},
             "race on %s: it %s it at {0}, block %s %s it at {1}, and blocks run in any order",
             element_name(region, offset), verb(now), block_name(block_of(time)), before);
    }
    bool warp = other / kWarp == machine.current->id / kWarp;
    fail(SIMT_RACE, pc, Site{},
         "race on %s: it %s it at {0}, thread %s %s it at {1}, with no %s in between",
         element_name(region, offset), verb(now), thread_name(other), before,
         warp ? "__syncthreads or __syncwarp" : "__syncthreads");
}

// The write that was to follow has happened: did it change what another thread had written?
void settle_pending_write() {
    PendingWrite& p = pending_write;
    p.active = false;
    if (memcmp(p.before, p.address, p.nbytes) == 0) return;
    Thread* running = machine.current;
    machine.current = &machine.thread[p.thread];
    const char* what = element_name(*p.region, (size_t)(p.address - p.region->base));
    char text[200];
    bool other_block = p.other_time < machine.block_start;
    snprintf(text, sizeof text, "%s", other_block ? block_name(block_of(p.other_time))
                                                  : thread_name(p.other));
    machine.current = running;
    second_place(p.other_pc == 0 ? 0 : p.other_pc + 1 + module_base(), Site{});
    fail_for(&machine.thread[p.thread], SIMT_RACE, p.pc, Site{},
             "race on %s: it writes it at {0}, %s %s writes another value at {1}, %s", what,
             other_block ? "block" : "thread", text,
             other_block ? "and blocks run in any order" : "with no barrier in between");
}

void note_write(const Region& region, Cell& cell, uint16_t me, uint64_t pc, bool atomic) {
    cell.write_time = machine.now;
    cell.write_pc = (uint32_t)(pc - 1 - module_base());
    cell.writer = me;
    cell.flags = (uint16_t)(kWritten | (atomic ? kAtomicWrite : 0));
    (void)region;
}

bool holds_value(const Region& region, const Cell& cell) {
    if (region.shared) return cell.write_time >= machine.block_start;
    return region.role != SIMT_ROLE_OUT || (cell.flags & kWritten);
}

void touch(const Region& region, size_t offset, Access access, uint64_t pc) {
    size_t index = offset >> region.shift;
    Cell& cell = region.cells[index];
    uint16_t me = machine.current->id;
    uint32_t short_pc = (uint32_t)(pc - 1 - module_base());
    bool stale = region.shared && cell.write_time < machine.block_start;
    bool written_alone = !stale && concurrent(region, cell.writer, cell.write_time);
    if (access == Access::kRead) {
        // A plain read beside another block's atomics is how flags are watched.
        bool watched = (cell.flags & kAtomicWrite) && cell.write_time < machine.block_start;
        if (written_alone && !watched)
            report_race(region, offset, access, pc,
                        cell.flags & kAtomicWrite ? "atomically changed" : "wrote", cell.writer,
                        cell.write_time, cell.write_pc);
        if (!holds_value(region, cell) && pending_read.region == nullptr)
            pending_read = {&region, index, machine.current, pc};
        if (cell.reader != me && cell.read_time != 0) {
            cell.reader2 = cell.reader;
            cell.read2_time = cell.read_time;
            cell.read2_pc = cell.read_pc;
        }
        cell.reader = me;
        cell.read_time = machine.now;
        cell.read_pc = short_pc;
        return;
    }
    bool atomic = access == Access::kAtomic;
    if (region.role == SIMT_ROLE_IN && !region.shared)
        fail(SIMT_READ_ONLY, pc, Site{}, "%s %s at {0}, an input that must stay as it is",
             verb(access), element_name(region, offset));
    struct { uint32_t time; uint16_t id; uint32_t pc; } readers[] = {
        {cell.read_time, cell.reader, cell.read_pc}, {cell.read2_time, cell.reader2, cell.read2_pc}};
    for (auto& reader : readers)
        if (concurrent(region, reader.id, reader.time))
            report_race(region, offset, access, pc, "read", reader.id, reader.time, reader.pc);
    if (written_alone && !(atomic && (cell.flags & kAtomicWrite))) {
        if (atomic || (cell.flags & kAtomicWrite))
            report_race(region, offset, access, pc,
                        cell.flags & kAtomicWrite ? "atomically changed" : "wrote", cell.writer,
                        cell.write_time, cell.write_pc);
        if (!pending_write.active) {
            PendingWrite& p = pending_write;
            p = {true, &region, region.base + (index << region.shift), (size_t)1 << region.shift,
                 {}, cell.writer, cell.write_time, cell.write_pc, pc, me};
            memcpy(p.before, p.address, p.nbytes);
        }
    }
    if (atomic && !holds_value(region, cell) && pending_read.region == nullptr)
        pending_read = {&region, index, machine.current, pc};
    if (atomic && !region.shared) machine.block_atomic = true;
    note_write(region, cell, me, pc, atomic);
}

void touch_all(const Region& region, size_t offset, size_t nbytes, Access access, uint64_t pc) {
    size_t width = (size_t)1 << region.shift;
    for (size_t at = offset & ~(width - 1); at < offset + nbytes; at += width)
        touch(region, at, access, pc);
}

[[noreturn]] void report_outside(const Region& region, const char* address, size_t nbytes,
                                 Access access, uint64_t pc) {
    long long width = 1LL << region.shift;
    long long offset = address - region.base;
    long long index = offset >= 0 ? offset / width : -((-offset + width - 1) / width);
    long long past = offset + (long long)nbytes - (long long)region.nbytes;
    char where[64];
    if (offset < 0) snprintf(where, sizeof where, "%lld bytes before its start", -offset);
    else snprintf(where, sizeof where, "%lld bytes past its end", past);
    fail(SIMT_OUT_OF_BOUNDS, pc, Site{}, "%s %zu bytes at %s[%lld] at {0}, %s (%zu elements of %lld "
         "bytes)", verb(access), nbytes, region.name, index, where, region.nbytes >> region.shift,
         width);
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
    fail(SIMT_OUT_OF_BOUNDS, pc, Site{}, "%s %zu bytes at address %p at {0}, in no tensor, shared or "
         "local memory", verb(access), nbytes, (const void*)address);
}

// Module-wide constants and __device__ variables: everything that is mapped for this module.
extern "C" const char __ehdr_start __attribute__((visibility("hidden")));
extern "C" const char _end __attribute__((visibility("hidden")));
bool in_module(const char* address) { return address >= &__ehdr_start && address < &_end; }

void lay_out_shared() {
    char* anchor = simt_shared_anchor;
    const SimtLaunch* launch = machine.launch;
    uint64_t anchor_offset = 0;
    for (int i = 0; i < launch->shared_variables; i++)
        if (strcmp(launch->shared_list[i].name, "simt_shared_anchor") == 0)
            anchor_offset = launch->shared_list[i].offset;
    shareds = 0;
    shared_low = shared_high = nullptr;
    for (int i = 0; i < launch->shared_variables && shareds < kMaxShared_; i++) {
        const SimtSharedVariable& variable = launch->shared_list[i];
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
                  SIMT_ROLE_INOUT, true, cells, cell_bytes};
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
    pending_read = {};
    pending_write.active = false;
    blocks_started = 0;
    lay_out_shared();
    if (!machine.checked) return;
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
                     nullptr, 0};
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
    if (blocks_started == block_capacity) {
        block_capacity = block_capacity == 0 ? 1024 : 2 * block_capacity;
        block_starts = (BlockStart*)realloc(block_starts, block_capacity * sizeof(BlockStart));
        if (block_starts == nullptr) abort();
    }
    block_starts[blocks_started++] = {machine.block_start, machine.block_number};
}

void memory_note_fault() {
    if (pending_read.region == nullptr) return;
    PendingRead read = pending_read;
    pending_read = {};
    size_t offset = read.cell << read.region->shift;
    fail_for(read.thread, SIMT_UNINITIALISED, read.pc, Site{},
             "reads %s at {0}, which no thread has written%s", element_name(*read.region, offset),
             read.region->shared ? " in this block" : "");
}

void memory_end_phase() {
    if (pending_write.active) settle_pending_write();
    memory_note_fault();
}

void memory_end_launch(bool ok) {
    if (!machine.checked) return;
    const SimtLaunch* launch = machine.launch;
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
            snprintf(fault->message, sizeof fault->message,
                     "no thread has written %s[%zu:%zu] (%zu of %zu elements were never written)",
                     region.name, begin, end, missing, count);
        }
        munmap(region.cells, region.cell_bytes);
        region.cells = nullptr;
    }
    munmap(arena, arena_bytes);
    free(page_owner);
    arena = nullptr;
    page_owner = nullptr;
}

void check_access(const void* pointer, size_t nbytes, Access access, uint64_t pc, Site) {
    const char* address = (const char*)pointer;
    if (machine.current == nullptr) return;
    if (pending_write.active) settle_pending_write();
    if ((size_t)(address - arena) < arena_bytes) {
        int owner = page_owner[(size_t)(address - arena) / kPage];
        if (owner != 0) {
            const Region& region = buffer[owner - 1];
            size_t offset = (size_t)(address - region.base);
            if (offset < region.nbytes && nbytes <= region.nbytes - offset) {
                touch_all(region, offset, nbytes, access, pc);
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
            touch_all(region, offset, nbytes, access, pc);
            return;
        }
        fail(SIMT_OUT_OF_BOUNDS, pc, Site{}, "%s %zu bytes at {0}, between two shared variables",
             verb(access), nbytes);
    }
    if (in_module(address)) return;
    report_wild(address, nbytes, access, pc);
}

}  // namespace simt

// Dynamic shared memory: every `extern __shared__ T name[]` is another name of it.
extern "C" {
__attribute__((visibility("hidden"), aligned(1024))) thread_local char
    simt_dynamic_shared[simt::kMaxShared];
}
