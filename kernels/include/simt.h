// simt.h: the device side of CUDA, for any C++17 compiler.
//
// Put before a student's kernels.cu when it is built for the CPU. What needs to know about other
// threads (barriers, warps, atomics, the place in the grid) is answered by the runtime that is
// linked in; everything else is plain C++. Vector types and mathematics stand in headers of their
// own, which this one includes.
#pragma once

#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __SANITIZE_THREAD__
#undef __SANITIZE_THREAD__  // a kernel must not know how it was built
#endif
#ifdef __clang__
#undef __has_feature
#undef __has_extension
#define __has_feature(name) 0
#define __has_extension(name) 0
#endif
// Says nothing to a compiler: what is launched is looked for behind it in the preprocessed text.
#define __global__ __attribute__((simt_global))
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
// One copy per thread of the host, so `extern __shared__ float s[];` stays a legal declaration.
#define __shared__ thread_local
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)

#include "simt_vectors.h"

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1)
        : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};

extern "C" {
// Constant for the thread that asks, however often it is suspended in between.
uint3 simt_thread_index(void) __attribute__((const));
uint3 simt_block_index(void) __attribute__((const));
uint3 simt_block_dim(void) __attribute__((const));
uint3 simt_grid_dim(void) __attribute__((const));

enum SimtBarrier { SIMT_SYNC, SIMT_COUNT, SIMT_AND, SIMT_OR };
int simt_barrier(enum SimtBarrier kind, int predicate, const char* file, int line);

enum SimtSource { SIMT_IDX, SIMT_UP, SIMT_DOWN, SIMT_XOR };
uint64_t simt_shuffle(enum SimtSource source, unsigned mask, uint64_t value, int delta, int width,
                      const char* file, int line);
// What the lanes of `mask` brought along; unused lanes hold garbage. `lanes` gets those who came.
const uint64_t* simt_meet(const char* name, unsigned mask, uint64_t value, unsigned* lanes,
                          const char* file, int line);

enum SimtAtomic { SIMT_ADD, SIMT_MIN, SIMT_MAX, SIMT_EXCH, SIMT_CAS, SIMT_BIT_AND, SIMT_BIT_OR,
                  SIMT_BIT_XOR, SIMT_INC, SIMT_DEC };
enum SimtType { SIMT_INT, SIMT_UNSIGNED, SIMT_LONG, SIMT_UNSIGNED_LONG, SIMT_FLOAT, SIMT_DOUBLE };
uint64_t simt_atomic(enum SimtAtomic operation, enum SimtType type, void* address, uint64_t value,
                     uint64_t expected, const char* file, int line);
// Atomics on 16-bit numbers and pairs go in three steps around the arithmetic, which nobody else
// sees: threads are only ever suspended at barriers and warp operations.
void simt_atomic_touch(void* address, unsigned nbytes, const char* file, int line);
void simt_atomic_copy(void* to, const void* from, unsigned nbytes);

void simt_fence(int whole_grid);
void simt_yield(void);
unsigned simt_active_lanes(const char* file, int line);
void simt_trap(const char* file, int line) __attribute__((noreturn));
long long simt_clock(void);
}

#define threadIdx (simt_thread_index())
#define blockIdx (simt_block_index())
#define blockDim (simt_block_dim())
#define gridDim (simt_grid_dim())
#define warpSize 32

// Every operation takes the line it is called from, without a debugger's help.
#define SIMT_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()
// Always inlined, so that an access inside belongs to a line of the caller.
#define SIMT_INLINE static inline __attribute__((unused, always_inline))

SIMT_INLINE void __syncthreads(SIMT_SITE) { simt_barrier(SIMT_SYNC, 0, file, line); }
SIMT_INLINE int __syncthreads_count(int predicate, SIMT_SITE) {
    return simt_barrier(SIMT_COUNT, predicate, file, line);
}
SIMT_INLINE int __syncthreads_and(int predicate, SIMT_SITE) {
    return simt_barrier(SIMT_AND, predicate, file, line);
}
SIMT_INLINE int __syncthreads_or(int predicate, SIMT_SITE) {
    return simt_barrier(SIMT_OR, predicate, file, line);
}
SIMT_INLINE void __syncwarp(unsigned mask = 0xffffffffu, SIMT_SITE) {
    unsigned lanes;
    simt_meet("__syncwarp", mask, 0, &lanes, file, line);
}

template <typename T>
SIMT_INLINE T simt_shuffle_as(SimtSource source, unsigned mask, T value, int delta, int width,
                              const char* file, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes per lane");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = simt_shuffle(source, mask, bits, delta, width, file, line);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}
template <typename T>
SIMT_INLINE T __shfl_sync(unsigned mask, T value, int lane, int width = 32, SIMT_SITE) {
    return simt_shuffle_as(SIMT_IDX, mask, value, lane, width, file, line);
}
template <typename T>
SIMT_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMT_SITE) {
    return simt_shuffle_as(SIMT_UP, mask, value, (int)delta, width, file, line);
}
template <typename T>
SIMT_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SIMT_SITE) {
    return simt_shuffle_as(SIMT_DOWN, mask, value, (int)delta, width, file, line);
}
template <typename T>
SIMT_INLINE T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, SIMT_SITE) {
    return simt_shuffle_as(SIMT_XOR, mask, value, lanes, width, file, line);
}

SIMT_INLINE unsigned simt_ballot(const char* name, unsigned mask, int predicate, unsigned* lanes,
                                 const char* file, int line) {
    const uint64_t* values = simt_meet(name, mask, predicate != 0, lanes, file, line);
    unsigned votes = 0;
    for (int lane = 0; lane < 32; lane++)
        if ((*lanes >> lane & 1) && values[lane]) votes |= 1u << lane;
    return votes;
}
SIMT_INLINE unsigned __ballot_sync(unsigned mask, int predicate, SIMT_SITE) {
    unsigned lanes;
    return simt_ballot("__ballot_sync", mask, predicate, &lanes, file, line);
}
SIMT_INLINE int __any_sync(unsigned mask, int predicate, SIMT_SITE) {
    unsigned lanes;
    return simt_ballot("__any_sync", mask, predicate, &lanes, file, line) != 0;
}
SIMT_INLINE int __all_sync(unsigned mask, int predicate, SIMT_SITE) {
    unsigned lanes;
    unsigned votes = simt_ballot("__all_sync", mask, predicate, &lanes, file, line);
    return votes == lanes;
}
template <typename T>
SIMT_INLINE unsigned __match_any_sync(unsigned mask, T value, SIMT_SITE) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "__match_any_sync compares 4 or 8 bytes");
    uint64_t bits = 0;
    unsigned lanes, equal = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    const uint64_t* values = simt_meet("__match_any_sync", mask, bits, &lanes, file, line);
    for (int lane = 0; lane < 32; lane++)
        if ((lanes >> lane & 1) && values[lane] == bits) equal |= 1u << lane;
    return equal;
}
template <typename T>
SIMT_INLINE unsigned __match_all_sync(unsigned mask, T value, int* all, SIMT_SITE) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "__match_all_sync compares 4 or 8 bytes");
    uint64_t bits = 0;
    unsigned lanes;
    __builtin_memcpy(&bits, &value, sizeof(T));
    const uint64_t* values = simt_meet("__match_all_sync", mask, bits, &lanes, file, line);
    *all = 1;
    for (int lane = 0; lane < 32; lane++)
        if ((lanes >> lane & 1) && values[lane] != bits) *all = 0;
    return *all ? lanes : 0;
}

template <typename T, typename F>
SIMT_INLINE T simt_warp_reduce(const char* name, unsigned mask, T value, F combine,
                               const char* file, int line) {
    static_assert(sizeof(T) == 4, "__reduce_*_sync takes int or unsigned");
    unsigned lanes;
    const uint64_t* values = simt_meet(name, mask, (unsigned)value, &lanes, file, line);
    T result = T();
    bool first = true;
    for (int lane = 0; lane < 32; lane++) {
        if (!(lanes >> lane & 1)) continue;
        result = first ? (T)(unsigned)values[lane] : combine(result, (T)(unsigned)values[lane]);
        first = false;
    }
    return result;
}
#define SIMT_REDUCE(name, T, expression)                                                   \
    SIMT_INLINE T name(unsigned mask, T value, SIMT_SITE) {                                \
        return simt_warp_reduce(#name, mask, value,                                        \
                                [](T a, T b) -> T { return expression; }, file, line);     \
    }
SIMT_REDUCE(__reduce_add_sync, unsigned, a + b)
SIMT_REDUCE(__reduce_add_sync, int, (int)((unsigned)a + (unsigned)b))
SIMT_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
SIMT_REDUCE(__reduce_min_sync, int, a < b ? a : b)
SIMT_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
SIMT_REDUCE(__reduce_max_sync, int, a > b ? a : b)
SIMT_REDUCE(__reduce_and_sync, unsigned, a & b)
SIMT_REDUCE(__reduce_or_sync, unsigned, a | b)
SIMT_REDUCE(__reduce_xor_sync, unsigned, a ^ b)

#include "simt_atomics.h"
#include "simt_math.h"

SIMT_INLINE void __threadfence() { simt_fence(1); }
SIMT_INLINE void __threadfence_block() { simt_fence(0); }
SIMT_INLINE void __threadfence_system() { simt_fence(1); }
SIMT_INLINE void __trap(SIMT_SITE) { simt_trap(file, line); }
SIMT_INLINE long long clock64() { return simt_clock(); }
SIMT_INLINE void __nanosleep(unsigned) { simt_yield(); }
SIMT_INLINE unsigned __activemask(SIMT_SITE) { return simt_active_lanes(file, line); }

// Loads and stores with cache hints.
#define SIMT_LOAD(name) \
    template <typename T> SIMT_INLINE T name(const T* address) { return *address; }
#define SIMT_STORE(name) \
    template <typename T> SIMT_INLINE void name(T* address, T value) { *address = value; }
SIMT_LOAD(__ldg) SIMT_LOAD(__ldcs) SIMT_LOAD(__ldca) SIMT_LOAD(__ldcg) SIMT_LOAD(__ldcv)
SIMT_LOAD(__ldlu)
SIMT_STORE(__stcs) SIMT_STORE(__stcg) SIMT_STORE(__stwb) SIMT_STORE(__stwt)

// How the launcher finds and calls a kernel whose type only the compiler knows.
struct SimtEntry {
    const char* name;
    void (*call)(const struct SimtEntry*, void** arguments);
    void (*kernel)(void);
    int parameters;
    const char* kinds;  // per parameter: p pointer, i integer, f float, d double
};
template <typename T> struct SimtKind { static const char value = sizeof(T) <= 8 ? 'i' : '?'; };
template <typename T> struct SimtKind<T*> { static const char value = 'p'; };
template <> struct SimtKind<float> { static const char value = 'f'; };
template <> struct SimtKind<double> { static const char value = 'd'; };

template <typename... P> struct SimtCaller {
    template <size_t... I> struct Places {};
    template <size_t N, size_t... I> struct Make : Make<N - 1, N - 1, I...> {};
    template <size_t... I> struct Make<0, I...> { typedef Places<I...> type; };
    template <size_t... I>
    __attribute__((no_sanitize("thread"), noinline)) static void unpack(
        void (*kernel)(P...), void** arguments, Places<I...>) {
        (void)arguments;
        kernel(*(P*)arguments[I]...);
    }
    __attribute__((no_sanitize("thread"))) static void call(const SimtEntry* entry,
                                                            void** arguments) {
        unpack((void (*)(P...))entry->kernel, arguments, typename Make<sizeof...(P)>::type());
    }
    static const char* kinds() {
        static const char text[] = {SimtKind<P>::value..., 0};
        return text;
    }
};
template <typename... P> SimtEntry simt_entry(const char* name, void (*kernel)(P...)) {
    return SimtEntry{name, SimtCaller<P...>::call, (void (*)(void))kernel, (int)sizeof...(P),
                     SimtCaller<P...>::kinds()};
}
