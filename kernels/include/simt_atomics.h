// Atomics on 2-, 4- and 8-byte numbers, in global and shared memory. All return the old value.
#pragma once

template <typename T> struct SimtTypeOf;
template <> struct SimtTypeOf<int> { static const SimtType value = SIMT_INT; };
template <> struct SimtTypeOf<unsigned> { static const SimtType value = SIMT_UNSIGNED; };
template <> struct SimtTypeOf<long long> { static const SimtType value = SIMT_LONG; };
template <> struct SimtTypeOf<unsigned long long> {
    static const SimtType value = SIMT_UNSIGNED_LONG;
};
template <> struct SimtTypeOf<float> { static const SimtType value = SIMT_FLOAT; };
template <> struct SimtTypeOf<double> { static const SimtType value = SIMT_DOUBLE; };

template <typename T>
SIMT_INLINE T simt_atomic_as(SimtAtomic operation, T* address, T value, T expected,
                             const char* file, int line) {
    uint64_t bits = 0, wanted = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    __builtin_memcpy(&wanted, &expected, sizeof(T));
    bits = simt_atomic(operation, SimtTypeOf<T>::value, (void*)address, bits, wanted, file, line);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}
#define SIMT_ATOMIC(name, operation, T)                                     \
    SIMT_INLINE T name(T* address, T value, SIMT_SITE) {                    \
        return simt_atomic_as<T>(operation, address, value, (T)0, file, line); \
    }
#define SIMT_ATOMIC_INTEGERS(name, operation) \
    SIMT_ATOMIC(name, operation, int)         \
    SIMT_ATOMIC(name, operation, unsigned)    \
    SIMT_ATOMIC(name, operation, long long)   \
    SIMT_ATOMIC(name, operation, unsigned long long)

SIMT_ATOMIC(atomicAdd, SIMT_ADD, int)
SIMT_ATOMIC(atomicAdd, SIMT_ADD, unsigned)
SIMT_ATOMIC(atomicAdd, SIMT_ADD, unsigned long long)
SIMT_ATOMIC(atomicAdd, SIMT_ADD, float)
SIMT_ATOMIC(atomicAdd, SIMT_ADD, double)
SIMT_ATOMIC_INTEGERS(atomicMin, SIMT_MIN)
SIMT_ATOMIC_INTEGERS(atomicMax, SIMT_MAX)
SIMT_ATOMIC_INTEGERS(atomicAnd, SIMT_BIT_AND)
SIMT_ATOMIC_INTEGERS(atomicOr, SIMT_BIT_OR)
SIMT_ATOMIC_INTEGERS(atomicXor, SIMT_BIT_XOR)
SIMT_ATOMIC(atomicExch, SIMT_EXCH, int)
SIMT_ATOMIC(atomicExch, SIMT_EXCH, unsigned)
SIMT_ATOMIC(atomicExch, SIMT_EXCH, unsigned long long)
SIMT_ATOMIC(atomicExch, SIMT_EXCH, float)
SIMT_ATOMIC(atomicInc, SIMT_INC, unsigned)
SIMT_ATOMIC(atomicDec, SIMT_DEC, unsigned)

SIMT_INLINE int atomicSub(int* address, int value, SIMT_SITE) {
    return atomicAdd(address, -value, file, line);
}
SIMT_INLINE unsigned atomicSub(unsigned* address, unsigned value, SIMT_SITE) {
    return atomicAdd(address, 0u - value, file, line);
}
#define SIMT_ATOMIC_CAS(T)                                                          \
    SIMT_INLINE T atomicCAS(T* address, T expected, T value, SIMT_SITE) {           \
        return simt_atomic_as<T>(SIMT_CAS, address, value, expected, file, line);   \
    }
SIMT_ATOMIC_CAS(int)
SIMT_ATOMIC_CAS(unsigned)
SIMT_ATOMIC_CAS(unsigned long long)

// The block-wide and system-wide forms are the same where one block runs at a time.
#define atomicAdd_block atomicAdd
#define atomicAdd_system atomicAdd
#define atomicSub_block atomicSub
#define atomicSub_system atomicSub
#define atomicMin_block atomicMin
#define atomicMin_system atomicMin
#define atomicMax_block atomicMax
#define atomicMax_system atomicMax
#define atomicExch_block atomicExch
#define atomicExch_system atomicExch
#define atomicCAS_block atomicCAS
#define atomicCAS_system atomicCAS
#define atomicAnd_block atomicAnd
#define atomicAnd_system atomicAnd
#define atomicOr_block atomicOr
#define atomicOr_system atomicOr
#define atomicXor_block atomicXor
#define atomicXor_system atomicXor
#define atomicInc_block atomicInc
#define atomicInc_system atomicInc
#define atomicDec_block atomicDec
#define atomicDec_system atomicDec

// For types whose arithmetic their own header brings (16-bit floats and pairs of them).
template <typename T>
SIMT_INLINE T simt_atomic_add_small(T* address, T value, const char* file, int line) {
    simt_atomic_touch(address, sizeof(T), file, line);
    T old;
    simt_atomic_copy(&old, (const void*)address, sizeof(T));
    T sum = old + value;
    simt_atomic_copy((void*)address, &sum, sizeof(T));
    return old;
}
SIMT_INLINE unsigned short atomicCAS(unsigned short* address, unsigned short expected,
                                     unsigned short value, SIMT_SITE) {
    simt_atomic_touch(address, sizeof value, file, line);
    unsigned short old;
    simt_atomic_copy(&old, (const void*)address, sizeof old);
    if (old == expected) simt_atomic_copy((void*)address, &value, sizeof value);
    return old;
}
