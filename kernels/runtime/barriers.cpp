// Where threads wait for each other: the barrier of a block, the operations of a warp.
#include "shadow.h"

#include <stdarg.h>

namespace simt {
namespace {

unsigned live_lanes(int warp) {
    unsigned lanes = 0;
    for (int lane = 0; lane < kWarp && warp * kWarp + lane < machine.threads; lane++)
        if (machine.thread[warp * kWarp + lane].state != State::kDone) lanes |= 1u << lane;
    return lanes;
}

void note_warp_order(int warp, unsigned lanes) {
    if (!machine.checked) return;
    WarpClock& clock = machine.warp[warp];
    uint32_t now = ++machine.now;
    if (lanes == live_lanes(warp)) {
        clock.all = now;
        return;
    }
    for (int i = 0; i < kWarp; i++)
        for (int j = 0; j < kWarp; j++)
            if ((lanes >> i & 1) && (lanes >> j & 1)) clock.pair[i][j] = now;
}

// Let the lanes of `mask` go on if all of them that still run have come.
bool try_complete(int warp, unsigned mask) {
    Thread* first = &machine.thread[warp * kWarp];
    unsigned expected = mask & live_lanes(warp), came = 0;
    for (int lane = 0; lane < kWarp; lane++) {
        if (!(expected >> lane & 1)) continue;
        Thread& thread = first[lane];
        if (thread.state != State::kWarpOperation || thread.mask != mask) return false;
        came |= 1u << lane;
    }
    if (came == 0) return false;
    const char* operation = nullptr;
    for (int lane = 0; lane < kWarp; lane++) {
        if (!(came >> lane & 1)) continue;
        Thread& thread = first[lane];
        if (operation == nullptr) operation = thread.operation;
        if (strcmp(operation, thread.operation) != 0) return false;
    }
    for (int to = 0; to < kWarp; to++) {
        if (!(came >> to & 1)) continue;
        for (int from = 0; from < kWarp; from++)
            if (came >> from & 1) first[to].result[from] = first[from].value;
        first[to].lanes = came;
        first[to].state = State::kReady;
    }
    if (strcmp(operation, "__syncwarp") == 0) note_warp_order(warp, came);
    return true;
}

void meet(const char* operation, unsigned mask, uint64_t value, Site site) {
    Thread* thread = machine.current;
    int lane = thread->id % kWarp;
    if (!(mask >> lane & 1))
        fail(SIMT_BARRIER, 0, site, "%s at {0}: lane %d calls it with mask 0x%08x, which does not "
             "name that lane", operation, lane, mask);
    thread->operation = operation;
    thread->mask = mask;
    thread->value = value;
    thread->site = site;
    thread->state = State::kWarpOperation;
    if (try_complete(thread->id / kWarp, mask)) return;
    suspend(State::kWarpOperation);
}

// Text of who waits where, one line for each place.
struct Text {
    char buffer[1500];
    size_t used = 0;
    void add(const char* format, ...) __attribute__((format(printf, 2, 3))) {
        va_list arguments;
        va_start(arguments, format);
        int n = vsnprintf(buffer + used, sizeof buffer - used, format, arguments);
        va_end(arguments);
        used += (size_t)n < sizeof buffer - used ? (size_t)n : sizeof buffer - used - 1;
    }
};

bool same_group(const Thread& a, const Thread& b) {
    if (a.state != b.state) return false;
    if (a.state == State::kDone) return true;
    return a.site.line == b.site.line && a.state == b.state &&
           (a.state == State::kBarrier || strcmp(a.operation, b.operation) == 0);
}

void add_ranges(Text& text, const Thread& like) {
    int shown = 0, count = 0;
    for (int i = 0; i < machine.threads;) {
        if (!same_group(machine.thread[i], like)) { i++; continue; }
        int end = i;
        while (end < machine.threads && same_group(machine.thread[end], like)) end++;
        count += end - i;
        if (shown < 4) {
            text.add("%s%s", shown ? ", " : "", thread_name(i));
            if (end - i > 1) text.add("%s%s", end - i > 2 ? "…" : ", ", thread_name(end - 1));
        }
        shown++;
        i = end;
    }
    if (shown > 4) text.add(", …");
    text.add(count == 1 ? " (1 thread)" : " (%d threads)", count);
}

}  // namespace

void exit_thread(Thread* thread) {
    if (machine.checked) shadow_settle_reads(thread);
    machine.alive--;
    thread->state = State::kDone;
    int warp = thread->id / kWarp;
    // Who waited for this lane alone can go on: only lanes that still run have to come.
    for (int lane = 0; lane < kWarp && warp * kWarp + lane < machine.threads; lane++) {
        Thread& other = machine.thread[warp * kWarp + lane];
        if (other.state == State::kWarpOperation && (other.mask >> (thread->id % kWarp) & 1))
            try_complete(warp, other.mask);
    }
}

bool answer_active_mask(int warp) {
    Thread* lane = &machine.thread[warp * kWarp];
    int count = machine.threads - warp * kWarp < kWarp ? machine.threads - warp * kWarp : kWarp;
    unsigned lanes = 0;
    const Thread* first = nullptr;
    for (int i = 0; i < count; i++) {
        if (lane[i].state != State::kActiveMask) continue;
        if (first == nullptr) first = &lane[i];
        bool together = lane[i].site.line == first->site.line &&
                        strcmp(lane[i].site.file, first->site.file) == 0;
        if (together) lanes |= 1u << i;
    }
    for (int i = 0; i < count; i++)
        if (lanes >> i & 1) lane[i].lanes = lanes, lane[i].state = State::kReady;
    return lanes != 0;
}

void report_deadlock() {
    Text text;
    bool told[kMaxThreads] = {};
    const Thread* first = nullptr;
    const Thread* second = nullptr;
    for (int i = 0; i < machine.threads; i++) {
        Thread& thread = machine.thread[i];
        if (told[i]) continue;
        for (int j = i; j < machine.threads; j++)
            if (same_group(machine.thread[j], thread)) told[j] = true;
        text.add("\n  ");
        add_ranges(text, thread);
        if (thread.state == State::kDone) {
            text.add(": returned from the kernel");
            continue;
        }
        const char* operation =
            thread.state == State::kBarrier ? "__syncthreads" : thread.operation;
        const char* base = strrchr(thread.site.file, '/');
        text.add(": at %s, %s:%d", operation, base ? base + 1 : thread.site.file,
                 thread.site.line);
        if (thread.state == State::kWarpOperation) text.add(", mask 0x%08x", thread.mask);
        if (first == nullptr) first = &thread;
        else if (second == nullptr) second = &thread;
    }
    if (second != nullptr) second_place(0, second->site);
    const char* what = first->state == State::kBarrier ? "__syncthreads" : first->operation;
    fail_for(first, SIMT_BARRIER, 0, first->site,
             "%s at {0} is not reached by all threads that it waits for:%s", what, text.buffer);
}

}  // namespace simt

using simt::machine;
using simt::Site;
using simt::State;

extern "C" {

int simt_barrier(enum SimtBarrier kind, int predicate, const char* file, int line) {
    simt::Machine& m = machine;
    simt::Thread* thread = m.current;
    if (m.at_barrier == 0) {
        m.barrier_count = m.barrier_or = 0;
        m.barrier_and = 1;
        m.barrier_kind = kind;
    }
    m.barrier_count += predicate != 0;
    m.barrier_and &= predicate != 0;
    m.barrier_or |= predicate != 0;
    thread->site = Site{file, line};
    thread->operation = "__syncthreads";
    thread->predicate = (int)kind;
    if (++m.at_barrier < m.threads) {
        simt::suspend(State::kBarrier);
        return thread->barrier_result;
    }
    for (int i = 0; i < m.threads; i++) {
        simt::Thread& other = m.thread[i];
        if (other.id == thread->id) continue;
        bool elsewhere = other.site.line != line || strcmp(other.site.file, file) != 0;
        if (elsewhere || other.predicate != (int)kind) {
            simt::second_place(0, other.site);
            simt::fail(SIMT_BARRIER, 0, Site{file, line},
                       "threads of one block wait at different barriers: this one at {0}, thread "
                       "%s at {1}", simt::thread_name(other.id));
        }
    }
    simt::memory_end_phase();
    m.at_barrier = 0;
    m.last_barrier = ++m.now;
    m.last_barrier_site = Site{file, line};
    int result = kind == SIMT_COUNT ? m.barrier_count : kind == SIMT_AND ? m.barrier_and
                                                                         : m.barrier_or;
    for (int i = 0; i < m.threads; i++) {
        m.thread[i].barrier_result = result;
        m.thread[i].state = State::kReady;
    }
    // The last to come steps back: threads go on in their order, so faults name the first of them.
    simt::suspend(State::kReady);
    return result;
}

unsigned simt_active_lanes(const char* file, int line) {
    machine.current->site = Site{file, line};
    machine.current->operation = "__activemask";
    simt::suspend(State::kActiveMask);
    return machine.current->lanes;
}

const uint64_t* simt_meet(const char* name, unsigned mask, uint64_t value, unsigned* lanes,
                          const char* file, int line) {
    simt::meet(name, mask, value, Site{file, line});
    *lanes = machine.current->lanes;
    return machine.current->result;
}

uint64_t simt_shuffle(enum SimtSource source, unsigned mask, uint64_t value, int delta, int width,
                      const char* file, int line) {
    static const char* const names[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                        "__shfl_xor_sync"};
    Site site{file, line};
    const char* name = names[source];
    if (width <= 0 || width > 32 || (width & (width - 1)) != 0)
        simt::fail(SIMT_BARRIER, 0, site, "%s at {0}: width %d is not 1, 2, 4, 8, 16 or 32", name,
                   width);
    simt::meet(name, mask, value, site);
    simt::Thread* thread = machine.current;
    int lane = thread->id % simt::kWarp;
    int base = lane & ~(width - 1), from = lane;
    if (source == SIMT_IDX) from = base + (delta & (width - 1));
    if (source == SIMT_UP) from = lane - delta < base ? lane : lane - delta;
    if (source == SIMT_DOWN) from = (unsigned)delta >= 32u || lane + delta >= base + width
                                        ? lane : lane + delta;
    if (source == SIMT_XOR) from = (lane ^ delta) >= base + width ? lane : lane ^ delta;
    // A lane that the mask leaves out has no value: harmless where a branch throws it away.
    if (from >= 0 && from < 32 && !(mask >> from & 1)) return ~(uint64_t)0;
    if (from < 0 || from >= 32 || !(thread->lanes >> from & 1))
        simt::fail(SIMT_BARRIER, 0, site,
                   "%s at {0}: lane %d reads lane %d, which does not take part (mask 0x%08x, lanes "
                   "that came 0x%08x): the value is undefined", name, lane, from, mask,
                   thread->lanes);
    return thread->result[from];
}

}  // extern "C"
