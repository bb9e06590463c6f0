// Atomics. One thread runs at a time, so the arithmetic itself is plain.
#include "order.h"

namespace {

template <typename T> T from_bits(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof(T));
    return value;
}

template <typename T> T integer_result(SimtAtomic operation, T old, T value, T expected) {
    switch (operation) {
        case SIMT_ADD: return (T)(old + value);
        case SIMT_MIN: return value < old ? value : old;
        case SIMT_MAX: return old < value ? value : old;
        case SIMT_EXCH: return value;
        case SIMT_CAS: return old == expected ? value : old;
        case SIMT_BIT_AND: return (T)(old & value);
        case SIMT_BIT_OR: return (T)(old | value);
        case SIMT_BIT_XOR: return (T)(old ^ value);
        case SIMT_INC: return old >= value ? (T)0 : (T)(old + 1);
        case SIMT_DEC: return old == 0 || old > value ? value : (T)(old - 1);
    }
    return old;
}

template <typename T> uint64_t integer(SimtAtomic operation, void* address, uint64_t value,
                                       uint64_t expected) {
    T old;
    memcpy(&old, address, sizeof(T));
    T result = integer_result<T>(operation, old, from_bits<T>(value), from_bits<T>(expected));
    memcpy(address, &result, sizeof(T));
    uint64_t bits = 0;
    memcpy(&bits, &old, sizeof(T));
    return bits;
}

template <typename T> uint64_t real(SimtAtomic operation, void* address, uint64_t value) {
    T old, other = from_bits<T>(value);
    memcpy(&old, address, sizeof(T));
    T result = operation == SIMT_ADD ? old + other : other;
    memcpy(address, &result, sizeof(T));
    uint64_t bits = 0;
    memcpy(&bits, &old, sizeof(T));
    return bits;
}

void touch(void* address, unsigned nbytes, const void* expected, uint64_t pc, simt::Site site) {
    simt::take_turns();
    if ((uintptr_t)address % nbytes != 0)
        simt::fail(SIMT_MISALIGNED, 0, site, "an atomic on %u bytes at {0} at address %p, which is "
                   "no multiple of %u", nbytes, address, nbytes);
    if (!simt::machine.checked) return;
    if (expected != nullptr) {
        simt::check_access(address, nbytes, simt::Access::kCompare, pc, site);
        if (memcmp(address, expected, nbytes) != 0) return;
    }
    simt::check_access(address, nbytes, simt::Access::kAtomic, pc, site);
    simt::order_meet(address, true, simt::is_shared(address));
}

}  // namespace

extern "C" {

void simt_atomic_touch(void* address, unsigned nbytes, const char* file, int line) {
    // Whether it is an addition or atomicCAS of two bytes is known to the caller alone.
    touch(address, nbytes, address, (uint64_t)(uintptr_t)__builtin_return_address(0),
          simt::Site{file, line});
}

// Part of an atomic: no access of its own.
void simt_atomic_copy(void* to, const void* from, unsigned nbytes) { memcpy(to, from, nbytes); }

uint64_t simt_atomic(enum SimtAtomic operation, enum SimtType type, void* address, uint64_t value,
                     uint64_t expected, const char* file, int line) {
    unsigned nbytes = type == SIMT_INT || type == SIMT_UNSIGNED || type == SIMT_FLOAT ? 4 : 8;
    touch(address, nbytes, operation == SIMT_CAS ? &expected : nullptr, (uint64_t)(uintptr_t)__builtin_return_address(0),
          simt::Site{file, line});
    switch (type) {
        case SIMT_INT: return integer<int32_t>(operation, address, value, expected);
        case SIMT_UNSIGNED: return integer<uint32_t>(operation, address, value, expected);
        case SIMT_LONG: return integer<int64_t>(operation, address, value, expected);
        case SIMT_UNSIGNED_LONG: return integer<uint64_t>(operation, address, value, expected);
        case SIMT_FLOAT: return real<float>(operation, address, value);
        case SIMT_DOUBLE: return real<double>(operation, address, value);
    }
    return 0;
}

}  // extern "C"
