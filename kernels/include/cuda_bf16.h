// __nv_bfloat16: the upper half of a float. Arithmetic is done in float and rounded to even.
#pragma once
#include "simt.h"

SIMT_INLINE unsigned short simt_float_to_bf16(float value) {
    unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

struct __nv_bfloat16_raw { unsigned short x; };
struct __nv_bfloat162_raw { unsigned short x, y; };

struct __attribute__((aligned(2))) __nv_bfloat16 {
    unsigned short __x;
    __nv_bfloat16() = default;
    __nv_bfloat16(float value) : __x(simt_float_to_bf16(value)) {}
    __nv_bfloat16(double value) : __x(simt_float_to_bf16((float)value)) {}
    template <typename I, typename = SimtIfInteger<I>>
    __nv_bfloat16(I value) : __x(simt_float_to_bf16(simt_sticky_float(value))) {}
    __nv_bfloat16(__nv_bfloat16_raw raw) : __x(raw.x) {}
    operator float() const { return __uint_as_float((unsigned)__x << 16); }
    operator __nv_bfloat16_raw() const { return {__x}; }
    __nv_bfloat16& operator=(float value) { return *this = __nv_bfloat16(value); }
};
typedef __nv_bfloat16 nv_bfloat16;

#define SIMT_SMALL __nv_bfloat16
#define SIMT_PAIR __nv_bfloat162
#define SIMT_PAIR_ALIAS nv_bfloat162
#include "simt_small_float.h"
#undef SIMT_SMALL
#undef SIMT_PAIR
#undef SIMT_PAIR_ALIAS

SIMT_INLINE __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
SIMT_INLINE __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
SIMT_INLINE __nv_bfloat16 __float2bfloat16_rz(float x) {
    __nv_bfloat16_raw raw = {(unsigned short)(__float_as_uint(x) >> 16)};
    return __nv_bfloat16(raw);
}
SIMT_INLINE __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16((float)x); }
SIMT_INLINE float __bfloat162float(__nv_bfloat16 x) { return (float)x; }
SIMT_INLINE __nv_bfloat162 __float2bfloat162_rn(float x) {
    return {__nv_bfloat16(x), __nv_bfloat16(x)};
}
SIMT_INLINE __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
SIMT_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 v) {
    return __floats2bfloat162_rn(v.x, v.y);
}
SIMT_INLINE float2 __bfloat1622float2(__nv_bfloat162 v) { return {(float)v.x, (float)v.y}; }
SIMT_INLINE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
SIMT_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
SIMT_INLINE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
SIMT_INLINE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
SIMT_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.__x; }
SIMT_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) {
    return __nv_bfloat16(__nv_bfloat16_raw{x});
}
SIMT_INLINE __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
#define SIMT_INTEGER(name, I)                                                      \
    SIMT_INLINE __nv_bfloat16 __##name##2bfloat16_rn(I x) { return __nv_bfloat16(x); } \
    SIMT_INLINE I __bfloat162##name##_rn(__nv_bfloat16 x) {                        \
        return __float2##name##_rn((float)x);                                      \
    }                                                                              \
    SIMT_INLINE I __bfloat162##name##_rz(__nv_bfloat16 x) {                        \
        return __float2##name##_rz((float)x);                                      \
    }
SIMT_INTEGER(int, int)
SIMT_INTEGER(uint, unsigned)
SIMT_INTEGER(ll, long long)
SIMT_INTEGER(ull, unsigned long long)
#undef SIMT_INTEGER
