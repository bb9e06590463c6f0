// Device mathematics: fast-math names, roundings spelled out, bit tricks, min and max.
#pragma once
#include <type_traits>

#define SIMT_PI_F 3.141592653589793f

// glibc declares functions of some of these names without defining them: macros step aside.
#define __expf expf
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __powf powf
#define __exp10f(x) powf(10.0f, x)
#define exp10f(x) powf(10.0f, x)
#define __sincosf(x, s, c) sincosf(x, s, c)
SIMT_INLINE float __fdividef(float x, float y) { return x / y; }
SIMT_INLINE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
SIMT_INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
SIMT_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }
SIMT_INLINE float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }
SIMT_INLINE float __frcp_rn(float x) { return 1.0f / x; }
SIMT_INLINE float __fsqrt_rn(float x) { return sqrtf(x); }
SIMT_INLINE float __fadd_rn(float x, float y) { return x + y; }
SIMT_INLINE float __fsub_rn(float x, float y) { return x - y; }
SIMT_INLINE float __fmul_rn(float x, float y) { return x * y; }
SIMT_INLINE float __fdiv_rn(float x, float y) { return x / y; }
SIMT_INLINE float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
SIMT_INLINE float fdividef(float x, float y) { return x / y; }
SIMT_INLINE float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }

template <typename To, typename From> SIMT_INLINE To simt_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "reinterprets equal sizes");
    To result;
    __builtin_memcpy(&result, &value, sizeof(To));
    return result;
}
SIMT_INLINE float __int_as_float(int x) { return simt_bits<float>(x); }
SIMT_INLINE float __uint_as_float(unsigned x) { return simt_bits<float>(x); }
SIMT_INLINE int __float_as_int(float x) { return simt_bits<int>(x); }
SIMT_INLINE unsigned __float_as_uint(float x) { return simt_bits<unsigned>(x); }
SIMT_INLINE double __longlong_as_double(long long x) { return simt_bits<double>(x); }
SIMT_INLINE long long __double_as_longlong(double x) { return simt_bits<long long>(x); }
// The nearest number of the type where x lies outside, 0 for a NaN.
template <typename T> SIMT_INLINE T simt_clamped(double x) {
    const bool is_signed = (T)-1 < (T)0;
    const double range = ldexp(1.0, (int)sizeof(T) * 8 - is_signed);
    const T most = (T)(~0ull >> (64 - sizeof(T) * 8 + is_signed));
    if (x != x) return 0;
    if (x >= range) return most;
    if (x <= (is_signed ? -range : 0.0)) return is_signed ? (T)(~most) : (T)0;
    return (T)x;
}
#define SIMT_TO_INTEGER(name, T)                                                            \
    SIMT_INLINE T __float2##name##_rn(float x) { return simt_clamped<T>(rint((double)x)); } \
    SIMT_INLINE T __float2##name##_rz(float x) { return simt_clamped<T>(trunc((double)x)); } \
    SIMT_INLINE T __float2##name##_rd(float x) { return simt_clamped<T>(floor((double)x)); } \
    SIMT_INLINE T __float2##name##_ru(float x) { return simt_clamped<T>(ceil((double)x)); } \
    SIMT_INLINE T __double2##name##_rn(double x) { return simt_clamped<T>(rint(x)); }       \
    SIMT_INLINE T __double2##name##_rz(double x) { return simt_clamped<T>(trunc(x)); }      \
    SIMT_INLINE T __double2##name##_rd(double x) { return simt_clamped<T>(floor(x)); }      \
    SIMT_INLINE T __double2##name##_ru(double x) { return simt_clamped<T>(ceil(x)); }       \
    SIMT_INLINE float __##name##2float_rn(T x) { return (float)x; }
SIMT_TO_INTEGER(int, int)
SIMT_TO_INTEGER(uint, unsigned)
SIMT_TO_INTEGER(ll, long long)
SIMT_TO_INTEGER(ull, unsigned long long)
#undef SIMT_TO_INTEGER
SIMT_INLINE float __double2float_rn(double x) { return (float)x; }
SIMT_INLINE double __int2double_rn(int x) { return (double)x; }
SIMT_INLINE double __uint2double_rn(unsigned x) { return (double)x; }
SIMT_INLINE double __ll2double_rn(long long x) { return (double)x; }
SIMT_INLINE double __ull2double_rn(unsigned long long x) { return (double)x; }

SIMT_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
SIMT_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
SIMT_INLINE int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
SIMT_INLINE int __clzll(long long x) {
    return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}
SIMT_INLINE int __ffs(int x) { return __builtin_ffs(x); }
SIMT_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
SIMT_INLINE unsigned __brev(unsigned x) {
    unsigned result = 0;
    for (int i = 0; i < 32; i++) result |= (x >> i & 1u) << (31 - i);
    return result;
}
// The product of the last 24 bits of both.
SIMT_INLINE unsigned __umul24(unsigned x, unsigned y) {
    return (x & 0xffffffu) * (y & 0xffffffu);
}
SIMT_INLINE int __mul24(int x, int y) {
    int a = (int)((unsigned)x << 8) >> 8, b = (int)((unsigned)y << 8) >> 8;
    return (int)((unsigned)a * (unsigned)b);
}
SIMT_INLINE int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
SIMT_INLINE unsigned __umulhi(unsigned x, unsigned y) {
    return (unsigned)((unsigned long long)x * y >> 32);
}
SIMT_INLINE unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
    unsigned long long both = (unsigned long long)hi << 32 | lo;
    return (unsigned)(both << (shift & 31u) >> 32);
}
SIMT_INLINE unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
    unsigned long long both = (unsigned long long)hi << 32 | lo;
    return (unsigned)(both >> (shift & 31u));
}
// The same two, where a shift past 32 is one of 32.
SIMT_INLINE unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned shift) {
    return shift >= 32 ? lo : __funnelshift_l(lo, hi, shift);
}
SIMT_INLINE unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned shift) {
    return shift >= 32 ? hi : __funnelshift_r(lo, hi, shift);
}
// Each of the four bytes of the result is the one of y:x that three bits of `selector` number.
SIMT_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++)
        result |= (unsigned)(both >> (selector >> 4 * i & 7u) * 8 & 0xffu) << 8 * i;
    return result;
}
template <typename T>
using SimtIfInteger = typename std::enable_if<std::is_integral<T>::value>::type;
// An integer as a float whose last bit tells whether some were cut: fit to be rounded once more.
template <typename T> SIMT_INLINE float simt_sticky_float(T value) {
    bool negative = value < (T)0;
    unsigned long long size = negative ? 0ull - (unsigned long long)value
                                       : (unsigned long long)value;
    int cut = 40 - __clzll((long long)size);
    if (cut > 0) size = (size >> cut | ((size & ((1ull << cut) - 1)) != 0)) << cut;
    return negative ? -(float)size : (float)size;
}

// CUDA's min and max take any two numbers of one kind; the wider type wins.
#define SIMT_MINMAX(T)                                                   \
    SIMT_INLINE T min(T a, T b) { return b < a ? b : a; }                \
    SIMT_INLINE T max(T a, T b) { return a < b ? b : a; }
SIMT_MINMAX(int)
SIMT_MINMAX(unsigned)
SIMT_MINMAX(long)
SIMT_MINMAX(unsigned long)
SIMT_MINMAX(long long)
SIMT_MINMAX(unsigned long long)
#undef SIMT_MINMAX
SIMT_INLINE unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
SIMT_INLINE unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
SIMT_INLINE unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
SIMT_INLINE unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
SIMT_INLINE float min(float a, float b) { return fminf(a, b); }
SIMT_INLINE float max(float a, float b) { return fmaxf(a, b); }
SIMT_INLINE double min(double a, double b) { return fmin(a, b); }
SIMT_INLINE double max(double a, double b) { return fmax(a, b); }
