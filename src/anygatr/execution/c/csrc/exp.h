/* Exponentials of vectors of non-positive numbers. */
#pragma once
#include "simd.h"

/* Coefficients of the highest power first: the Taylor polynomial 1/d! is exact to rounding on [-log(2) / 2, log(2) / 2]. */
/* clang-format off */
#if DOUBLE
#define EXPONENT_BIAS 1023
#define MANTISSA_BITS 52
static const double EXP_COEFFICIENTS[] = {
    1.6059043836821613e-10, 2.08767569878681e-09, 2.505210838544172e-08, 2.755731922398589e-07, 2.7557319223985893e-06,
    2.48015873015873e-05, 0.0001984126984126984, 0.001388888888888889, 0.008333333333333333, 0.041666666666666664,
    0.16666666666666666, 0.5, 1.0, 1.0};
#else
#define EXPONENT_BIAS 127
#define MANTISSA_BITS 23
static const double EXP_COEFFICIENTS[] = {0.0001984126984126984, 0.001388888888888889, 0.008333333333333333,
    0.041666666666666664, 0.16666666666666666, 0.5, 1.0, 1.0};
#endif
/* clang-format on */

/* c[0] x^(count - 1) + c[1] x^(count - 2) + ...; inlined with a constant count, so the loop and the table disappear. */
static inline __attribute__((always_inline)) vec horner(vec x, const double *c, int count) {
    vec sum = (vec){0} + (real)c[0];
#pragma GCC unroll 32
    for (int i = 1; i < count; i++) sum = sum * x + (real)c[i];
    return sum;
}
#define HORNER(x, c) horner(x, c, sizeof(c) / sizeof(*(c)))

/* exp(x) for x <= 0; zero below exp(-69), where results would slow matrix products down as denormals, or underflow. */
static inline vec exp_vec(vec x) {
    ivec n = __builtin_convertvector(x * (real)1.4426950408889634 - (real)0.5, ivec);
    vec r = x - __builtin_convertvector(n, vec) * (real)0.6931471805599453;
    vec p = HORNER(r, EXP_COEFFICIENTS);
    ivec power = (n + EXPONENT_BIAS) << MANTISSA_BITS, far = x < (real)-69;
    return (vec)((ivec)(p * (vec)power) & ~far);
}
