// CUDA's vector types with CUDA's alignments: 16-byte accesses need addresses that are multiples.
#pragma once

#define SIMT_VECTORS(T, name, align1, align2, align4)                                       \
    struct name##1 { T x; };                                                                \
    struct __attribute__((aligned(align2))) name##2 { T x, y; };                            \
    struct name##3 { T x, y, z; };                                                          \
    struct __attribute__((aligned(align4))) name##4 { T x, y, z, w; };                      \
    static inline __attribute__((unused)) name##1 make_##name##1(T x) { return {x}; }       \
    static inline __attribute__((unused)) name##2 make_##name##2(T x, T y) { return {x, y}; } \
    static inline __attribute__((unused)) name##3 make_##name##3(T x, T y, T z) {           \
        return {x, y, z};                                                                   \
    }                                                                                       \
    static inline __attribute__((unused)) name##4 make_##name##4(T x, T y, T z, T w) {      \
        return {x, y, z, w};                                                                \
    }

SIMT_VECTORS(signed char, char, 1, 2, 4)
SIMT_VECTORS(unsigned char, uchar, 1, 2, 4)
SIMT_VECTORS(short, short, 2, 4, 8)
SIMT_VECTORS(unsigned short, ushort, 2, 4, 8)
SIMT_VECTORS(int, int, 4, 8, 16)
SIMT_VECTORS(unsigned int, uint, 4, 8, 16)
SIMT_VECTORS(long, long, 8, 16, 16)
SIMT_VECTORS(unsigned long, ulong, 8, 16, 16)
SIMT_VECTORS(long long, longlong, 8, 16, 16)
SIMT_VECTORS(unsigned long long, ulonglong, 8, 16, 16)
SIMT_VECTORS(float, float, 4, 8, 16)
SIMT_VECTORS(double, double, 8, 16, 16)
#undef SIMT_VECTORS
