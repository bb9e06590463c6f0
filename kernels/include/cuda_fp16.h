// __half: IEEE binary16. Arithmetic is done in float and rounded to even.
#pragma once
#include "simt.h"

SIMT_INLINE unsigned short simt_float_to_half(float value) {
    unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return (unsigned short)0x7fff;
    if (rest >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
    if (rest < 0x38800000u) {  // subnormal: let the addition of floats do the rounding
        float shifted = __uint_as_float(rest) + 0.5f;
        return (unsigned short)(sign | (__float_as_uint(shifted) - 0x3f000000u));
    }
    return (unsigned short)(sign | ((rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13));
}
SIMT_INLINE float simt_half_to_float(unsigned short half) {
    unsigned sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest < 0x400u) {
        float small = (float)rest * 5.9604644775390625e-08f;
        return sign ? -small : small;
    }
    return __uint_as_float(sign | ((rest << 13) + 0x38000000u));
}

struct __half_raw { unsigned short x; };

struct __attribute__((aligned(2))) __half {
    unsigned short __x;
    __half() = default;
    __half(float value) : __x(simt_float_to_half(value)) {}
    __half(double value) : __x(simt_float_to_half((float)value)) {}
    template <typename I, typename = SimtIfInteger<I>>
    __half(I value) : __x(simt_float_to_half(simt_sticky_float(value))) {}
    __half(__half_raw raw) : __x(raw.x) {}
    operator float() const { return simt_half_to_float(__x); }
    operator __half_raw() const { return {__x}; }
    __half& operator=(float value) { return *this = __half(value); }
};
typedef __half half;

#define SIMT_SMALL __half
#define SIMT_PAIR __half2
#define SIMT_PAIR_ALIAS half2
#include "simt_small_float.h"
#undef SIMT_SMALL
#undef SIMT_PAIR
#undef SIMT_PAIR_ALIAS

SIMT_INLINE __half __float2half(float x) { return __half(x); }
SIMT_INLINE __half __float2half_rn(float x) { return __half(x); }
SIMT_INLINE __half __double2half(double x) { return __half((float)x); }
SIMT_INLINE float __half2float(__half x) { return (float)x; }
SIMT_INLINE __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
SIMT_INLINE __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
SIMT_INLINE __half2 __float22half2_rn(float2 v) { return __floats2half2_rn(v.x, v.y); }
SIMT_INLINE float2 __half22float2(__half2 v) { return {(float)v.x, (float)v.y}; }
SIMT_INLINE __half2 __half2half2(__half x) { return {x, x}; }
SIMT_INLINE __half2 __halves2half2(__half x, __half y) { return {x, y}; }
SIMT_INLINE __half __low2half(__half2 v) { return v.x; }
SIMT_INLINE __half __high2half(__half2 v) { return v.y; }
SIMT_INLINE unsigned short __half_as_ushort(__half x) { return x.__x; }
SIMT_INLINE __half __ushort_as_half(unsigned short x) { return __half(__half_raw{x}); }
SIMT_INLINE __half2 make_half2(__half x, __half y) { return {x, y}; }
#define SIMT_INTEGER(name, I)                                                      \
    SIMT_INLINE __half __##name##2half_rn(I x) { return __half(x); }               \
    SIMT_INLINE I __half2##name##_rn(__half x) {                                   \
        return __float2##name##_rn((float)x);                                      \
    }                                                                              \
    SIMT_INLINE I __half2##name##_rz(__half x) {                                   \
        return __float2##name##_rz((float)x);                                      \
    }
SIMT_INTEGER(int, int)
SIMT_INTEGER(uint, unsigned)
SIMT_INTEGER(ll, long long)
SIMT_INTEGER(ull, unsigned long long)
#undef SIMT_INTEGER
