/* Vectors of `real`: types, loads, shuffles, sums and maxima over the lanes; buffers. generated.h says whether real is
 * double. */
#pragma once
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generated.h"

#define EXPORT __attribute__((visibility("default")))

#if DOUBLE
typedef double real;
typedef long integer; /* as wide as real */
#else
typedef float real;
typedef int integer;
#endif

#ifdef __AVX512F__
#define BYTES 64
#else
#define BYTES 32
#endif
#define LANES (BYTES / (DOUBLE ? 8 : 4))
#define HALF (LANES / 2)
#define UP(n) (((n) + LANES - 1) / LANES * LANES)   /* rounded up to whole vectors */
#define UP_HALF(n) (((n) + HALF - 1) / HALF * HALF) /* to half vectors, as rows of right factors are padded */
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* aligned as a number: loads and stores at any address */
typedef real vec __attribute__((vector_size(BYTES), aligned(sizeof(real))));
typedef real half __attribute__((vector_size(BYTES / 2), aligned(sizeof(real))));
typedef integer ivec __attribute__((vector_size(BYTES), aligned(sizeof(real))));
#define AT(p) (*(vec *)(p))

#define LIST_4(F, A) F(0, A), F(1, A), F(2, A), F(3, A)
#define LIST_8(F, A) LIST_4(F, A), F(4, A), F(5, A), F(6, A), F(7, A)
#define LIST_16(F, A) LIST_8(F, A), F(8, A), F(9, A), F(10, A), F(11, A), F(12, A), F(13, A), F(14, A), F(15, A)
#if LANES == 16
#define LIST LIST_16
#elif LANES == 8
#define LIST LIST_8
#else
#define LIST LIST_4
#endif
/* the lanes F(0, A), F(1, A), ... of a followed by b */
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, F, A) __builtin_shufflevector(a, b, LIST(F, A))
#else
#define SHUFFLE(a, b, F, A) __builtin_shuffle(a, b, (ivec){LIST(F, A)})
#endif

static inline vec select_lanes(ivec which, vec a, vec b) { return (vec)(((ivec)a & which) | ((ivec)b & ~which)); }
static inline vec max_vec(vec a, vec b) { return select_lanes(a > b, a, b); }

/* The sum and the maximum of all lanes, in every lane: each with the one half a vector away, then a quarter, ... */
#define PARTNER(lane, A) ((lane) ^ (A))
static inline vec sum_lanes(vec x) {
#if LANES > 8
    x += SHUFFLE(x, x, PARTNER, 8);
#endif
#if LANES > 4
    x += SHUFFLE(x, x, PARTNER, 4);
#endif
    x += SHUFFLE(x, x, PARTNER, 2);
    return x + SHUFFLE(x, x, PARTNER, 1);
}
static inline vec max_lanes(vec x) {
#if LANES > 8
    x = max_vec(x, SHUFFLE(x, x, PARTNER, 8));
#endif
#if LANES > 4
    x = max_vec(x, SHUFFLE(x, x, PARTNER, 4));
#endif
    x = max_vec(x, SHUFFLE(x, x, PARTNER, 2));
    return max_vec(x, SHUFFLE(x, x, PARTNER, 1));
}

/* empty tensors have no address, and memcpy and memset of null are undefined even for no bytes */
static inline void copy(const real *from, real *to, long n) {
    if (n > 0) memcpy(to, from, n * sizeof(real));
}
static inline void clear(real *to, long n) {
    if (n > 0) memset(to, 0, n * sizeof(real));
}
static inline real *buffer(long n) { return aligned_alloc(64, (n * sizeof(real) + 64) / 64 * 64); }
static inline real *zeros(long n) {
    real *out = buffer(n);
    clear(out, n);
    return out;
}
