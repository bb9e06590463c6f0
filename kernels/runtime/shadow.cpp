// The cells of memory, and what their stories say.
//
// Every element has a cell that remembers its last writer and its last two readers with the logical
// time of their access. Time grows at every block, barrier and __syncwarp, so "since then they have
// waited for each other" is one comparison.
#include "shadow.h"

#include <stdlib.h>

#include "order.h"

extern "C" const int simt_knows_volatile __attribute__((visibility("default")));

namespace simt {
namespace {

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
    char before[256];
    uint16_t other;
    uint32_t other_time, other_pc;
    uint64_t pc;
    uint16_t thread;
} pending_write;  // two threads write one place: a race only if they write different values

const BlockStart& block_at(uint32_t time) {
    size_t low = 0, high = blocks_started;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (block_starts[middle].time <= time) low = middle;
        else high = middle;
    }
    return block_starts[low];
}
uint64_t block_of(uint32_t time) { return block_at(time).number; }
uint32_t block_start_of(uint32_t time) { return block_at(time).time; }

// What is said of two blocks.
const char* any_order() {
    return machine.atomics ? ": blocks run in any order, and no __threadfence() with an atomic "
                             "after it puts these two in order"
                           : ": blocks run in any order";
}

// Whether an earlier access may have happened at the same time as one of the running thread.
bool concurrent(const Region& region, uint16_t other, uint32_t time) {
    const Machine& m = machine;
    if (time == 0) return false;
    if (time < m.block_start) {
        // Another block. Shared memory is fresh; global memory is ordered by fences and atomics.
        return !region.shared && !order_covers(other, time, block_start_of(time));
    }
    int me = m.current->id;
    if (other == me || time < m.last_barrier) return false;
    if (other / kWarp == me / kWarp) {
        const WarpClock& clock = m.warp[me / kWarp];
        if (time < clock.all || time < clock.pair[me % kWarp][other % kWarp]) return false;
    }
    return !order_covers(other, time, m.block_start);
}

// What is said of two threads of a block that share no later barrier than the last one.
const char* after_barrier() {
    if (machine.last_barrier_site.line == 0) return "";
    barrier_place(machine.last_barrier_site);
    return " (both after the one at {2})";
}

[[noreturn]] void report_race(const Region& region, size_t offset, Access now, uint64_t pc,
                              const char* before, uint16_t other, uint32_t time,
                              uint32_t other_pc) {
    second_place(other_pc == 0 ? 0 : other_pc + 1 + module_base(), Site{});
    if (time < machine.block_start) {
        fail(SIMT_RACE, pc, Site{},
             "race on %s, which this thread %s at {0} and block %s %s at {1}%s",
             element_name(region, offset), verb(now), block_name(block_of(time)), before,
             any_order());
    }
    bool warp = other / kWarp == machine.current->id / kWarp;
    fail(SIMT_RACE, pc, Site{},
         "race on %s, which this thread %s at {0} and thread %s %s at {1}, with no %s in "
         "between%s",
         element_name(region, offset), verb(now), thread_name(other), before,
         warp ? "__syncthreads or __syncwarp" : "__syncthreads", after_barrier());
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
             "race on %s, to which this thread writes one value at {0} and %s %s another at "
             "{1}%s%s",
             what, other_block ? "block" : "thread", text,
             other_block ? any_order() : ", with no __syncthreads in between",
             other_block ? "" : after_barrier());
}

bool holds_value(const Region& region, const Cell& cell) {
    if (region.shared) return cell.write_time >= machine.block_start;
    return region.role != SIMT_ROLE_OUT || (cell.flags & kWritten);
}

// A read that meets what another thread changes by atomics: perhaps atomicCAS comes after it.
bool put_off(Thread* reader, const Region& region, size_t cell, uint64_t pc, uint16_t other,
             uint32_t time, uint32_t other_pc) {
    if (reader->state == State::kDone) return false;
    for (int i = 0; i < reader->earlies; i++) {
        EarlyRead& early = reader->early[i];
        if (early.region != &region || early.pc != pc) continue;
        if (cell >= early.cell && cell < early.cell + early.cells) return true;
        if (cell != early.cell + early.cells) continue;
        early.cells++;
        return true;
    }
    if (reader->earlies == kEarlyReads) return false;
    reader->early[reader->earlies++] = {&region, cell, 1, pc, time, other_pc, other};
    return true;
}

// The running thread compares what lies there: its earlier reads of it were only a first guess.
void forget_reads(const Region& region, Cell& cell, size_t index) {
    Thread* thread = machine.current;
    for (int i = 0; i < kReaders; i++)
        if (cell.reader[i] == thread->id && cell.read_time[i] >= machine.block_start)
            cell.read_time[i] = 0;
    for (int i = thread->earlies - 1; i >= 0; i--) {
        const EarlyRead& early = thread->early[i];
        if (early.region == &region && index >= early.cell && index < early.cell + early.cells)
            thread->early[i] = thread->early[--thread->earlies];
    }
}

void note_read(Cell& cell, bool watched, uint32_t pc) {
    uint16_t me = machine.current->id;
    auto move = [&cell](int from, int to) {
        cell.reader[to] = cell.reader[from];
        cell.read_time[to] = cell.read_time[from];
        cell.read_pc[to] = cell.read_pc[from];
        bool bit = cell.flags & (kWatched << from);
        cell.flags = (uint16_t)((cell.flags & ~(kWatched << to)) | (bit ? kWatched << to : 0));
    };
    for (int i = 0; i < 2; i++)
        if (cell.read_time[i] != 0 && cell.read_time[i] < machine.block_start) {
            move(i, 2);
            cell.read_time[i] = 0;
        }
    if (cell.reader[0] != me && cell.read_time[0] != 0) move(0, 1);
    cell.reader[0] = me;
    cell.read_time[0] = machine.now;
    cell.read_pc[0] = pc;
    cell.flags = (uint16_t)((cell.flags & ~kWatched) | (watched ? kWatched : 0));
}

void touch_read(const Region& region, size_t index, Cell& cell, Access access, uint64_t pc,
                bool alone) {
    size_t offset = index << region.shift;
    bool atomics = cell.flags & kAtomicWrite;
    // Beside atomics, a volatile read is how a flag is watched. Some compilers do not tell which
    // reads are: with them, any read of what another block has changed so.
    bool watches = access != Access::kRead;
    bool watched = atomics && (watches || (!simt_knows_volatile &&
                                           cell.write_time < machine.block_start));
    if (alone && !watched) {
        bool later = atomics && put_off(machine.current, region, index, pc, cell.writer,
                                        cell.write_time, cell.write_pc);
        if (!later)
            report_race(region, offset, access, pc, atomics ? "atomically changed" : "wrote",
                        cell.writer, cell.write_time, cell.write_pc);
    }
    if (!alone && access == Access::kRead && !region.shared &&
        concurrent(region, cell.adder, cell.add_time))
        report_race(region, offset, access, pc, "atomically changed", cell.adder, cell.add_time,
                    cell.add_pc);
    if (!holds_value(region, cell) && pending_read.region == nullptr)
        pending_read = {&region, index, machine.current, pc};
    note_read(cell, watches, (uint32_t)(pc - 1 - module_base()));
    if (atomics) order_meet(region.base + offset, false, region.shared);
}

void touch(const Region& region, size_t offset, Access access, uint64_t pc) {
    size_t index = offset >> region.shift;
    Cell& cell = region.cells[index];
    uint16_t me = machine.current->id;
    uint32_t short_pc = (uint32_t)(pc - 1 - module_base());
    bool stale = region.shared && cell.write_time < machine.block_start;
    bool alone = !stale && concurrent(region, cell.writer, cell.write_time);
    if (access == Access::kCompare) forget_reads(region, cell, index);
    if (access != Access::kWrite && access != Access::kAtomic &&
        access != Access::kVolatileWrite) {
        touch_read(region, index, cell, access, pc, alone);
        return;
    }
    // A volatile write is how a flag is set; one of shared memory without a fence is how warps
    // were hoped to keep in step.
    bool flag = access == Access::kVolatileWrite &&
                (!region.shared || machine.current->block_fence.time != 0);
    bool atomic = access == Access::kAtomic;
    if (region.role == SIMT_ROLE_IN && !region.shared)
        fail(SIMT_READ_ONLY, pc, Site{}, "%s %s at {0}, an input that must stay as it is",
             verb(access), element_name(region, offset));
    for (int i = 0; i < kReaders; i++) {
        bool watched = (atomic || flag) && (cell.flags & (kWatched << i));
        if (watched || !concurrent(region, cell.reader[i], cell.read_time[i])) continue;
        bool later = atomic && cell.read_time[i] >= machine.block_start &&
                     put_off(&machine.thread[cell.reader[i]], region, index,
                             cell.read_pc[i] + 1 + module_base(), me, machine.now, short_pc);
        if (!later)
            report_race(region, offset, access, pc, "read", cell.reader[i], cell.read_time[i],
                        cell.read_pc[i]);
    }
    bool after_atomics = cell.flags & kAtomicWrite;
    if (alone && !(atomic && after_atomics)) {
        if (atomic || (after_atomics && !flag))
            report_race(region, offset, access, pc, after_atomics ? "atomically changed" : "wrote",
                        cell.writer, cell.write_time, cell.write_pc);
        PendingWrite& p = pending_write;
        char* address = region.base + (index << region.shift);
        size_t width = (size_t)1 << region.shift;
        if (p.active && p.pc == pc && p.thread == me && address == p.address + p.nbytes &&
            p.nbytes + width <= sizeof p.before) {
            // The next cell of the same access.
            memcpy(p.before + p.nbytes, address, width);
            p.nbytes += width;
        } else if (!p.active) {
            p = {true, &region, address, width, {}, cell.writer, cell.write_time, cell.write_pc, pc,
                 me};
            memcpy(p.before, address, width);
        }
    }
    if (atomic && !holds_value(region, cell) && pending_read.region == nullptr)
        pending_read = {&region, index, machine.current, pc};
    if (atomic && !region.shared) machine.atomics = true;
    if (!atomic) {
        cell.add_time = 0;
    } else if (after_atomics && cell.write_time < machine.block_start) {
        cell.add_time = cell.write_time;
        cell.add_pc = cell.write_pc;
        cell.adder = cell.writer;
    }
    cell.write_time = machine.now;
    cell.write_pc = short_pc;
    cell.writer = me;
    uint16_t kept = atomic || flag ? (uint16_t)(cell.flags & (kWatched * 7)) : (uint16_t)0;
    cell.flags = (uint16_t)(kept | kWritten | (atomic || flag ? kAtomicWrite : 0));
    if (flag) order_meet(region.base + (index << region.shift), true, region.shared);
}

}  // namespace

const char* element_name(const Region& region, size_t offset) {
    static char text[4][160];
    static int turn;
    char* name = text[turn++ & 3];
    unsigned width = 1u << region.shift;
    if (region.untyped)
        snprintf(name, 160, "%s (%sbyte %zu)", region.name, region.shared ? "shared, " : "",
                 offset);
    else
        snprintf(name, 160, "%s[%zu]%s", region.name, offset / width,
                 region.shared ? " (shared)" : "");
    return name;
}

const char* verb(Access access) {
    switch (access) {
        case Access::kRead:
        case Access::kVolatileRead: return "reads";
        case Access::kCompare:
        case Access::kAtomic: return "atomically changes";
        default: return "writes";
    }
}

void shadow_begin_launch() {
    pending_read = {};
    pending_write.active = false;
    blocks_started = 0;
}

void shadow_begin_block() {
    if (blocks_started == block_capacity) {
        block_capacity = block_capacity == 0 ? 1024 : 2 * block_capacity;
        block_starts = (BlockStart*)realloc(block_starts, block_capacity * sizeof(BlockStart));
        if (block_starts == nullptr) abort();
    }
    block_starts[blocks_started++] = {machine.block_start, machine.block_number};
}

void shadow_touch(const Region& region, size_t offset, size_t nbytes, Access access, uint64_t pc) {
    size_t width = (size_t)1 << region.shift;
    for (size_t at = offset & ~(width - 1); at < offset + nbytes; at += width)
        touch(region, at, access, pc);
}

void shadow_settle() {
    if (pending_write.active) settle_pending_write();
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

void shadow_settle_reads(Thread* thread) {
    if (thread->earlies == 0) return;
    EarlyRead early = thread->early[0];
    thread->earlies = 0;
    machine.current = thread;
    shadow_settle();
    report_race(*early.region, early.cell << early.region->shift, Access::kRead, early.pc,
                "atomically changed", early.other, early.other_time, early.other_pc);
}

void memory_end_phase() {
    shadow_settle();
    for (int i = 0; i < machine.threads; i++) shadow_settle_reads(&machine.thread[i]);
    memory_note_fault();
}

}  // namespace simt
