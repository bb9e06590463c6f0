// Launching: blocks one after the other, warp by warp, until all threads are done or none can go
// on.
#include "order.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

extern "C" {
extern const char __ehdr_start __attribute__((visibility("hidden")));
extern const SimtEntry simt_entries[];
extern const int simt_entry_count;
extern const int simt_checked;
// At the front of the thread-local segment of this module, wherever the linker puts it.
__attribute__((visibility("default"))) thread_local char simt_shared_anchor[16];
__attribute__((visibility("default"))) extern const int simt_version = SIMT_INTERFACE_VERSION;
}

namespace simt {

Machine machine;

namespace {

char* stacks;             // kMaxThreads + 1 of them, each with a guard page at its low end
char* free_stack[kMaxThreads + 1];
int free_stacks;
int stacks_made;
const size_t kGuard = 4096;

char* take_stack() {
    if (free_stacks > 0) return free_stack[--free_stacks];
    if (stacks == nullptr) {
        void* space = mmap(nullptr, kStack * (kMaxThreads + 1), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (space == MAP_FAILED) abort();
        stacks = (char*)space;
    }
    char* stack = stacks + kStack * stacks_made++;
    mprotect(stack, kGuard, PROT_NONE);
    return stack;
}

void thread_body() {
    machine.entry->call(machine.entry, machine.values);
    exit_thread(machine.current);
    suspend(State::kDone);
    abort();
}

void resume(Thread* thread) {
    machine.current = thread;
    thread->atomics = 0;
    if (thread->stack == nullptr) {
        thread->stack = take_stack();
        thread->sp = prepare_stack(thread->stack + kGuard, kStack - kGuard, thread_body);
    }
    simt_switch(&machine.scheduler_sp, thread->sp);
    machine.current = nullptr;
    if (thread->state == State::kDone) {
        free_stack[free_stacks++] = thread->stack;  // the next thread finds it warm in the cache
        thread->stack = nullptr;
    }
}

// A step that visits all of 0 … n - 1 before it comes back to where it began: 1, or, for an order
// other than the natural one, some number without a common divisor with n.
uint64_t visiting_step(uint64_t n, uint32_t order) {
    if (order == 0 || n < 3) return 1;
    for (uint64_t step = n / 3 + order % 16 + 1;; step++) {
        uint64_t a = step % n, b = n;
        while (a != 0) {
            uint64_t rest = b % a;
            b = a;
            a = rest;
        }
        if (b == 1) return step % n;
    }
}

void run_block() {
    Machine& m = machine;
    m.alive = m.threads;
    m.at_barrier = 0;
    m.block_start = m.last_barrier = ++m.now;
    m.last_barrier_site = Site{};
    int id = 0;
    for (unsigned z = 0; z < m.block.z; z++)
        for (unsigned y = 0; y < m.block.y; y++)
            for (unsigned x = 0; x < m.block.x; x++, id++) {
                Thread& thread = m.thread[id];
                thread.index = uint3{x, y, z};
                thread.id = (uint16_t)id;
                thread.state = State::kReady;
                thread.fence = thread.block_fence = Fence{};
                thread.fence_told = 0;
                thread.earlies = 0;
            }
    for (int warp = 0; m.checked && warp * kWarp < m.threads; warp++)
        memset(&m.warp[warp], 0, sizeof(WarpClock));
    memory_begin_block();
    if (m.checked) order_begin_block();
    while (m.alive > 0) {
        bool progressed = false;
        int warps = (m.threads + kWarp - 1) / kWarp;
        for (int turn = 0; turn < warps; turn++) {
            // With another order: the last warp first, and lanes by leaps.
            int first = (m.launch->order == 0 ? turn : warps - 1 - turn) * kWarp;
            int count = first + kWarp < m.threads ? kWarp : m.threads - first;
            int leap = (int)visiting_step((uint64_t)count, m.launch->order);
            // Long enough to come from one barrier to the next; threads that spin take turns.
            for (int sweep = 0; sweep < 256; sweep++) {
                bool ran = false;
                for (int at = 0; at < count; at++) {
                    int i = first + at * leap % count;
                    if (m.thread[i].state != State::kReady) continue;
                    resume(&m.thread[i]);
                    if (m.failed) return;
                    ran = progressed = true;
                }
                if (!ran && !answer_active_mask(first / kWarp)) break;
            }
        }
        if (m.alive > 0 && !progressed) {
            m.current = nullptr;
            report_deadlock();
        }
    }
    m.current = nullptr;
    memory_end_phase();
}

int handled[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction previous[4];
char* signal_stack;
stack_t previous_stack;
jmp_buf scheduler_jump;  // for faults that are found outside any thread

void on_signal(int number, siginfo_t* info, void* context) {
    if (machine.current == nullptr) {
        signal(number, SIG_DFL);
        return;
    }
    sigset_t set;
    sigemptyset(&set);
    for (int each : handled) sigaddset(&set, each);
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    uint64_t pc = 0;
#if defined(__x86_64__)
    pc = (uint64_t)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] + 1;
#elif defined(__aarch64__)
    pc = (uint64_t)((ucontext_t*)context)->uc_mcontext.pc + 4;
#endif
    if (number == SIGFPE) fail(SIMT_CRASH, pc, Site{}, "divides an integer by zero at {0}");
    char* address = (char*)info->si_addr;
    char* low = machine.current->stack;
    if (address >= low && address < low + kGuard)
        fail(SIMT_CRASH, pc, Site{}, "needs more than %zu KiB of local memory at {0}",
             kStack >> 10);
    fail(SIMT_OUT_OF_BOUNDS, pc, Site{}, "accesses address %p at {0}, where there is no memory",
         (void*)address);
}

void install_handlers() {
    if (signal_stack == nullptr) signal_stack = (char*)malloc(64 << 10);
    stack_t stack = {};
    stack.ss_sp = signal_stack;
    stack.ss_size = 64 << 10;
    sigaltstack(&stack, &previous_stack);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < 4; i++) sigaction(handled[i], &action, &previous[i]);
}

void restore_handlers() {
    for (int i = 0; i < 4; i++) sigaction(handled[i], &previous[i], nullptr);
    sigaltstack(&previous_stack, nullptr);
}

void copy_place(SimtPlace* place, uint64_t pc, Site site) {
    place->pc = pc == 0 ? 0 : pc - 1 - module_base();
    place->line = site.line;
    snprintf(place->file, sizeof place->file, "%s", site.file == nullptr ? "" : site.file);
}

[[noreturn]] void fail_with(const Thread* thread, int kind, uint64_t pc, Site site,
                            const char* format, va_list arguments) {
    SimtFault* fault = machine.fault;
    if (kind != SIMT_UNINITIALISED && kind != SIMT_RACE) memory_note_fault();
    fault->kind = kind;
    fault->has_thread = thread != nullptr;
    uint3 b = machine.block_index;
    fault->block[0] = b.x, fault->block[1] = b.y, fault->block[2] = b.z;
    if (thread != nullptr) {
        uint3 t = thread->index;
        fault->thread[0] = t.x, fault->thread[1] = t.y, fault->thread[2] = t.z;
    }
    copy_place(&fault->place[0], pc, site);
    vsnprintf(fault->message, sizeof fault->message, format, arguments);
    machine.failed = true;
    if (machine.current == nullptr) longjmp(scheduler_jump, 1);
    void* abandoned;
    simt_switch(&abandoned, machine.scheduler_sp);
    abort();
}

}  // namespace

void fail(int kind, uint64_t pc, Site site, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fail_with(machine.current, kind, pc, site, format, arguments);
}

void fail_for(const Thread* thread, int kind, uint64_t pc, Site site, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fail_with(thread, kind, pc, site, format, arguments);
}

void second_place(uint64_t pc, Site site) { copy_place(&machine.fault->place[1], pc, site); }

void barrier_place(Site site) { copy_place(&machine.fault->place[2], 0, site); }

uint64_t module_base() { return (uint64_t)(uintptr_t)&__ehdr_start; }

const char* thread_name(int id) {
    static char text[8][40];
    static int turn;
    char* name = text[turn++ & 7];
    uint3 d = machine.block;
    unsigned i = (unsigned)id;
    snprintf(name, 40, "(%u,%u,%u)", i % d.x, i / d.x % d.y, i / (d.x * d.y));
    return name;
}

const char* block_name(uint64_t number) {
    static char text[4][48];
    static int turn;
    char* name = text[turn++ & 3];
    uint3 g = machine.grid;
    snprintf(name, 48, "(%u,%u,%u)", (unsigned)(number % g.x), (unsigned)(number / g.x % g.y),
             (unsigned)(number / ((uint64_t)g.x * g.y)));
    return name;
}

void suspend(State why) {
    Thread* thread = machine.current;
    thread->state = why;
    simt_switch(&thread->sp, machine.scheduler_sp);
}

void take_turns() {
    Thread* thread = machine.current;
    if (thread == nullptr) return;
    machine.dice = machine.dice * 1664525u + 1013904223u;
    bool may = machine.launch->order != 0 && (machine.dice >> 28) < 5;
    if (++thread->atomics <= 64 && !may) return;
    thread->atomics = 0;
    suspend(State::kReady);
}

bool on_current_stack(const void* address) {
    const char* low = machine.current->stack;
    return (const char*)address >= low && (const char*)address < low + kStack;
}

bool on_any_stack(const void* address, int* thread) {
    for (int i = 0; i < machine.threads; i++) {
        const char* low = machine.thread[i].stack;
        if (low != nullptr && (const char*)address >= low && (const char*)address < low + kStack) {
            *thread = i;
            return true;
        }
    }
    return false;
}

}  // namespace simt

using simt::machine;

extern "C" {

uint3 simt_thread_index(void) { return machine.current->index; }
uint3 simt_block_index(void) { return machine.block_index; }
uint3 simt_block_dim(void) { return machine.block; }
uint3 simt_grid_dim(void) { return machine.grid; }
void simt_fence(int whole_grid) {
    if (machine.checked) simt::order_fence(whole_grid != 0);
}
void simt_yield(void) { simt::suspend(simt::State::kReady); }

long long simt_clock(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

void simt_trap(const char* file, int line) {
    simt::fail(SIMT_ASSERT, 0, simt::Site{file, line}, "calls __trap() at {0}");
}

// assert() of the C library ends here instead of in abort().
__attribute__((visibility("hidden"), noreturn)) void __assert_fail(
    const char* expression, const char* file, unsigned line, const char*) noexcept {
    simt::fail(SIMT_ASSERT, 0, simt::Site{file, (int)line}, "assertion `%s` does not hold at {0}",
               expression);
}

__attribute__((visibility("default"))) int simt_launch(const SimtLaunch* launch,
                                                       SimtFault* fault) {
    simt::Machine& m = machine;
    memset(fault, 0, sizeof *fault);
    m.launch = launch;
    m.fault = fault;
    m.entry = &simt_entries[launch->entry];
    m.values = launch->values;
    m.checked = simt_checked != 0;
    m.failed = false;
    m.atomics = false;
    m.dice = launch->order;
    m.current = nullptr;
    m.grid = uint3{launch->grid[0], launch->grid[1], launch->grid[2]};
    m.block = uint3{launch->block[0], launch->block[1], launch->block[2]};
    m.threads = (int)(m.block.x * m.block.y * m.block.z);
    m.now = 1;
    // After a fault some stacks were left with their threads: all of them are free now.
    simt::free_stacks = 0;
    for (int i = simt::stacks_made - 1; i >= 0; i--)
        simt::free_stack[simt::free_stacks++] = simt::stacks + simt::kStack * i;
    for (int i = 0; i < simt::kMaxThreads; i++) m.thread[i].stack = nullptr;

    uint64_t blocks = (uint64_t)m.grid.x * m.grid.y * m.grid.z;
    m.block_stride = simt::visiting_step(blocks, launch->order);
    m.block_number = 0;
    simt::memory_begin_launch();
    if (m.checked) simt::order_begin_launch();
    simt::install_handlers();
    if (setjmp(simt::scheduler_jump) == 0) {
        for (uint64_t turn = 0; turn < blocks && !m.failed; turn++) {
            uint64_t number = m.block_number, row = number / m.grid.x;
            m.block_index = uint3{(unsigned)(number % m.grid.x), (unsigned)(row % m.grid.y),
                                  (unsigned)(row / m.grid.y)};
            simt::run_block();
            m.block_number = (number + m.block_stride) % blocks;
        }
    }
    simt::restore_handlers();
    simt::memory_end_launch(!m.failed);
    return fault->kind;
}

}  // extern "C"
