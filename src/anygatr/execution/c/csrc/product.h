/* Products of the tokens of a tile, unrolled (product.c) or by tables (product_table.c). */
#pragma once
#include "simd.h"

typedef struct {
    short left_blade, left, right_blade, right; /* of two stacks of multivectors */
    float sign;
} product_entry;
/* out[part][blade] = reference * (entries from `begin` to `scaled`) + entries from `scaled` to `end` */
typedef struct {
    int part, blade, begin, scaled, end;
} product_sum;
typedef struct {
    long out, left, right, sums; /* the first three: multivectors per token and channel */
    const product_sum *sum;
    const product_entry *entry;
} product_plan;

/* a (blades, tokens, left * channels), b and out alike, blades `stride` numbers apart; odd terms are multiplied by the join
   reference of their token, which may be null (1 for all). What is unrolled needs no plan. */
typedef void product_tile(const product_plan *plan, const real *a, long a_stride, const real *b, long b_stride,
                          const real *join_reference, real *out, long out_stride, long channels, long tokens);

/* the order and rounding of sums are stated, so that leaving zeros out changes no digit */
#if !defined(__FMA__) && !defined(__ARM_FEATURE_FMA)
#define FMA(a, b, s) ((a) * (b) + (s))
#elif DOUBLE
#define FMA(a, b, s) __builtin_fma(a, b, s)
#else
#define FMA(a, b, s) __builtin_fmaf(a, b, s)
#endif
