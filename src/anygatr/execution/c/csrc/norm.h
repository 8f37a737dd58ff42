/* Multivectors divided by their invariant size over channels, and the derivative. */
#pragma once
#include "simd.h"

/* size(x) = mean over channels of sum_g |sum_{b in g} sign_b x_b x_partner(b)|; x is divided by sqrt(max(size, 0) + eps), or
   by sqrt(max(size, eps)) with `clamp`. */
typedef struct {
    int blade, partner, group;
    double sign;
} norm_entry;
typedef struct {
    long blades, groups, entries, absolute, clamp;
    double eps;
    const norm_entry *entry;
} norm_plan;

/* numbers of a blade that are handled together: rows that stay in the first cache */
#define NORM_TILE 256
#define NORM_TOKENS(channels) (NORM_TILE > (channels) ? NORM_TILE / (channels) : 1)
#define ROOT(x) (sizeof(real) == sizeof(float) ? (real)sqrtf(x) : (real)sqrt(x))

/* The signed products of each group, (groups, width), and the size of each channel. */
static inline void norm_sizes(const norm_plan *plan, const real *restrict x, long x_stride, long width,
                              real *restrict squares, real *restrict size) {
    clear(squares, plan->groups * width);
    for (long e = 0; e < plan->entries; e++) {
        const real *from = x + plan->entry[e].blade * x_stride, *other = x + plan->entry[e].partner * x_stride;
        const real sign = plan->entry[e].sign;
        real *sum = squares + plan->entry[e].group * width;
        for (long i = 0; i < width; i++) sum[i] += sign * from[i] * other[i];
    }
    clear(size, width);
    for (long g = 0; g < plan->groups; g++) {
        const real *square = squares + g * width;
        if (plan->absolute)
            for (long i = 0; i < width; i++) size[i] += square[i] < 0 ? -square[i] : square[i];
        else
            for (long i = 0; i < width; i++) size[i] += square[i];
    }
}

/* 1 / sqrt(size) of a token from the sizes of its channels; *active where the size has a derivative. */
static inline real norm_scale(const norm_plan *plan, const real *size, long channels, int *active) {
    real mean = 0;
    for (long i = 0; i < channels; i++) mean += size[i];
    mean /= channels;
    *active = plan->clamp ? mean > plan->eps : mean > 0;
    if (plan->clamp) return 1 / ROOT(mean > plan->eps ? mean : plan->eps);
    return 1 / ROOT((mean < 0 ? 0 : mean) + plan->eps);
}

static void norm_some(const norm_plan *plan, const real *restrict x, long x_stride, real *restrict out, long out_stride,
                      long channels, long tokens) {
    long width = tokens * channels;
    real squares[(plan->groups + 1) * width], size[width], scale[width];
    int active;
    norm_sizes(plan, x, x_stride, width, squares, size);
    for (long t = 0; t < tokens; t++) {
        real one = norm_scale(plan, size + t * channels, channels, &active);
        for (long i = t * channels; i < (t + 1) * channels; i++) scale[i] = one;
    }
    for (long b = 0; b < plan->blades; b++)
        for (long i = 0; i < width; i++) out[b * out_stride + i] = scale[i] * x[b * x_stride + i];
}

static void norm_some_backward(const norm_plan *plan, const real *restrict x, long x_stride, const real *restrict grad,
                               long grad_stride, real *restrict out, long out_stride, long channels, long tokens) {
    long width = tokens * channels;
    real squares[(plan->groups + 1) * width], size[width], scale[width], pull[width];
    norm_sizes(plan, x, x_stride, width, squares, size);
    clear(pull, width);
    for (long b = 0; b < plan->blades; b++)
        for (long i = 0; i < width; i++) pull[i] += x[b * x_stride + i] * grad[b * grad_stride + i];
    for (long t = 0; t < tokens; t++) {
        int active;
        real one = norm_scale(plan, size + t * channels, channels, &active), dot = 0;
        for (long i = t * channels; i < (t + 1) * channels; i++) scale[i] = one;
        for (long i = t * channels; i < (t + 1) * channels; i++) dot += pull[i];
        real factor = active ? dot / channels * one * one * one : 0;
        for (long i = t * channels; i < (t + 1) * channels; i++) pull[i] = factor;
    }
    for (long g = 0; g < plan->groups; g++) {
        real *square = squares + g * width;
        if (plan->absolute)
            for (long i = 0; i < width; i++) square[i] = pull[i] * ((square[i] > 0) - (square[i] < 0));
        else
            for (long i = 0; i < width; i++) square[i] = pull[i];
    }
    for (long b = 0; b < plan->blades; b++)
        for (long i = 0; i < width; i++) out[b * out_stride + i] = scale[i] * grad[b * grad_stride + i];
    for (long e = 0; e < plan->entries; e++) {
        long b = plan->entry[e].blade;
        const real *pulled = squares + plan->entry[e].group * width, *other = x + plan->entry[e].partner * x_stride;
        const real sign = plan->entry[e].sign; /* the metric is symmetric: the partner's partner is the blade */
        for (long i = 0; i < width; i++) out[b * out_stride + i] -= sign * pulled[i] * other[i];
    }
}

/* x (blades, tokens, channels) divided by its size, blades `stride` numbers apart. */
static void norm_forward(const norm_plan *plan, const real *x, long x_stride, real *out, long out_stride, long channels,
                         long tokens) {
    if (!channels) return;
    for (long at = 0, step = NORM_TOKENS(channels); at < tokens; at += step)
        norm_some(plan, x + at * channels, x_stride, out + at * channels, out_stride, channels, MIN(step, tokens - at));
}

/* The gradient of x from that of the result. */
static void norm_backward(const norm_plan *plan, const real *x, long x_stride, const real *grad, long grad_stride, real *out,
                          long out_stride, long channels, long tokens) {
    if (!channels) return;
    for (long at = 0, a = 0, step = NORM_TOKENS(channels); at < tokens; at += step, a = at * channels)
        norm_some_backward(plan, x + a, x_stride, grad + a, grad_stride, out + a, out_stride, channels,
                           MIN(step, tokens - at));
}
