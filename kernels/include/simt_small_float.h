// Arithmetic that both 16-bit types and their pairs share. Included once for each of them, with
// SIMT_SMALL, SIMT_PAIR and SIMT_PAIR_ALIAS defined; therefore no `#pragma once`.

struct __attribute__((aligned(4))) SIMT_PAIR {
    SIMT_SMALL x, y;
    SIMT_PAIR() = default;
    SIMT_PAIR(SIMT_SMALL x_, SIMT_SMALL y_) : x(x_), y(y_) {}
};
typedef SIMT_PAIR SIMT_PAIR_ALIAS;

#define SIMT_ARITHMETIC(op)                                                            \
    SIMT_INLINE SIMT_SMALL operator op(SIMT_SMALL a, SIMT_SMALL b) {                   \
        return SIMT_SMALL((float)a op(float) b);                                       \
    }                                                                                  \
    SIMT_INLINE SIMT_SMALL& operator op##=(SIMT_SMALL& a, SIMT_SMALL b) {              \
        return a = a op b;                                                             \
    }                                                                                  \
    SIMT_INLINE SIMT_PAIR operator op(SIMT_PAIR a, SIMT_PAIR b) {                      \
        return {a.x op b.x, a.y op b.y};                                               \
    }                                                                                  \
    SIMT_INLINE SIMT_PAIR& operator op##=(SIMT_PAIR& a, SIMT_PAIR b) { return a = a op b; }
SIMT_ARITHMETIC(+)
SIMT_ARITHMETIC(-)
SIMT_ARITHMETIC(*)
SIMT_ARITHMETIC(/)
#undef SIMT_ARITHMETIC
SIMT_INLINE SIMT_SMALL operator-(SIMT_SMALL a) { return SIMT_SMALL(-(float)a); }
#define SIMT_COMPARISON(op) \
    SIMT_INLINE bool operator op(SIMT_SMALL a, SIMT_SMALL b) { return (float)a op(float) b; }
SIMT_COMPARISON(<)
SIMT_COMPARISON(>)
SIMT_COMPARISON(<=)
SIMT_COMPARISON(>=)
SIMT_COMPARISON(==)
SIMT_COMPARISON(!=)
#undef SIMT_COMPARISON

SIMT_INLINE SIMT_SMALL __hadd(SIMT_SMALL a, SIMT_SMALL b) { return a + b; }
SIMT_INLINE SIMT_SMALL __hsub(SIMT_SMALL a, SIMT_SMALL b) { return a - b; }
SIMT_INLINE SIMT_SMALL __hmul(SIMT_SMALL a, SIMT_SMALL b) { return a * b; }
SIMT_INLINE SIMT_SMALL __hdiv(SIMT_SMALL a, SIMT_SMALL b) { return a / b; }
SIMT_INLINE SIMT_SMALL __hneg(SIMT_SMALL a) { return -a; }
SIMT_INLINE SIMT_SMALL __habs(SIMT_SMALL a) { return SIMT_SMALL(fabsf((float)a)); }
SIMT_INLINE SIMT_SMALL __hfma(SIMT_SMALL a, SIMT_SMALL b, SIMT_SMALL c) {
    return SIMT_SMALL(fmaf((float)a, (float)b, (float)c));
}
SIMT_INLINE SIMT_SMALL __hmax(SIMT_SMALL a, SIMT_SMALL b) {
    return SIMT_SMALL(fmaxf((float)a, (float)b));
}
SIMT_INLINE SIMT_SMALL __hmin(SIMT_SMALL a, SIMT_SMALL b) {
    return SIMT_SMALL(fminf((float)a, (float)b));
}
// None of them holds of a NaN, not even __hne.
#define SIMT_COMPARISON(name, expression)                                                 \
    SIMT_INLINE bool __h##name(SIMT_SMALL a, SIMT_SMALL b) { return expression; }          \
    SIMT_INLINE SIMT_PAIR __h##name##2(SIMT_PAIR a, SIMT_PAIR b) {                         \
        return {SIMT_SMALL(__h##name(a.x, b.x) ? 1.0f : 0.0f),                             \
                SIMT_SMALL(__h##name(a.y, b.y) ? 1.0f : 0.0f)};                            \
    }                                                                                     \
    SIMT_INLINE bool __hb##name##2(SIMT_PAIR a, SIMT_PAIR b) {                            \
        return __h##name(a.x, b.x) && __h##name(a.y, b.y);                                  \
    }
SIMT_COMPARISON(gt, a > b)
SIMT_COMPARISON(ge, a >= b)
SIMT_COMPARISON(lt, a < b)
SIMT_COMPARISON(le, a <= b)
SIMT_COMPARISON(eq, a == b)
SIMT_COMPARISON(ne, a < b || a > b)
#undef SIMT_COMPARISON
SIMT_INLINE bool __hisnan(SIMT_SMALL a) { return (float)a != (float)a; }
SIMT_INLINE bool __hisinf(SIMT_SMALL a) { return fabsf((float)a) > FLT_MAX; }
#define SIMT_FUNCTION(name, function)                                                      \
    SIMT_INLINE SIMT_SMALL h##name(SIMT_SMALL a) { return SIMT_SMALL(function((float)a)); } \
    SIMT_INLINE SIMT_PAIR h2##name(SIMT_PAIR a) { return {h##name(a.x), h##name(a.y)}; }
SIMT_FUNCTION(exp, expf)
SIMT_FUNCTION(exp2, exp2f)
SIMT_FUNCTION(log, logf)
SIMT_FUNCTION(log2, log2f)
SIMT_FUNCTION(sqrt, sqrtf)
SIMT_FUNCTION(rsqrt, rsqrtf)
SIMT_FUNCTION(rcp, 1.0f /)
SIMT_FUNCTION(floor, floorf)
SIMT_FUNCTION(ceil, ceilf)
SIMT_FUNCTION(rint, rintf)
SIMT_FUNCTION(trunc, truncf)
#undef SIMT_FUNCTION

SIMT_INLINE SIMT_PAIR __hadd2(SIMT_PAIR a, SIMT_PAIR b) { return a + b; }
SIMT_INLINE SIMT_PAIR __hsub2(SIMT_PAIR a, SIMT_PAIR b) { return a - b; }
SIMT_INLINE SIMT_PAIR __hmul2(SIMT_PAIR a, SIMT_PAIR b) { return a * b; }
SIMT_INLINE SIMT_PAIR __hfma2(SIMT_PAIR a, SIMT_PAIR b, SIMT_PAIR c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
SIMT_INLINE SIMT_PAIR __hmax2(SIMT_PAIR a, SIMT_PAIR b) {
    return {__hmax(a.x, b.x), __hmax(a.y, b.y)};
}
SIMT_INLINE SIMT_PAIR __hmin2(SIMT_PAIR a, SIMT_PAIR b) {
    return {__hmin(a.x, b.x), __hmin(a.y, b.y)};
}
SIMT_INLINE SIMT_PAIR __h2div(SIMT_PAIR a, SIMT_PAIR b) { return a / b; }
SIMT_INLINE SIMT_PAIR __hneg2(SIMT_PAIR a) { return {-a.x, -a.y}; }
SIMT_INLINE SIMT_PAIR __habs2(SIMT_PAIR a) { return {__habs(a.x), __habs(a.y)}; }
SIMT_INLINE float __low2float(SIMT_PAIR v) { return (float)v.x; }
SIMT_INLINE float __high2float(SIMT_PAIR v) { return (float)v.y; }

SIMT_INLINE SIMT_SMALL atomicAdd(SIMT_SMALL* address, SIMT_SMALL value, SIMT_SITE) {
    return simt_atomic_add_small(address, value, file, line);
}
SIMT_INLINE SIMT_PAIR atomicAdd(SIMT_PAIR* address, SIMT_PAIR value, SIMT_SITE) {
    return simt_atomic_add_small(address, value, file, line);
}
