/* Multivectors multiplied by the GELU (tanh form) of their own scalar part, and the derivative. */
#pragma once
#include "gelu.h"

#define GATE_TILE 256 /* numbers of a blade that are handled together */

static void gates(const real *restrict x, real *restrict gate, real *restrict slope, long n) {
    real from[GATE_TILE];
    memset(from, 0, sizeof from);
    copy(x, from, n);
    for (long i = 0; i < n; i += LANES) AT(gate + i) = gelu_tanh(AT(from + i), slope ? (vec *)(slope + i) : 0);
}

static void gate_some(const real *restrict x, long x_stride, real *restrict out, long out_stride, long blades, long n) {
    real gate[GATE_TILE];
    gates(x, gate, 0, n);
    for (long b = 0; b < blades; b++)
        for (long i = 0; i < n; i++) out[b * out_stride + i] = gate[i] * x[b * x_stride + i];
}

static void gate_some_backward(const real *restrict x, long x_stride, const real *restrict grad, long grad_stride,
                               real *restrict out, long out_stride, long blades, long n) {
    real gate[GATE_TILE], slope[GATE_TILE], dot[GATE_TILE] = {0};
    gates(x, gate, slope, n);
    for (long b = 0; b < blades; b++)
        for (long i = 0; i < n; i++) dot[i] += x[b * x_stride + i] * grad[b * grad_stride + i];
    for (long b = 0; b < blades; b++)
        for (long i = 0; i < n; i++) out[b * out_stride + i] = gate[i] * grad[b * grad_stride + i];
    for (long i = 0; i < n; i++) out[i] += slope[i] * dot[i];
}

/* gelu(x_0) x for x (blades, n), blades `stride` numbers apart. */
static void gate_forward(const real *x, long x_stride, real *out, long out_stride, long blades, long n) {
    for (long at = 0; at < n; at += GATE_TILE)
        gate_some(x + at, x_stride, out + at, out_stride, blades, MIN(GATE_TILE, n - at));
}

/* The gradient of x from that of the result. */
static void gate_backward(const real *x, long x_stride, const real *grad, long grad_stride, real *out, long out_stride,
                          long blades, long n) {
    for (long at = 0; at < n; at += GATE_TILE)
        gate_some_backward(x + at, x_stride, grad + at, grad_stride, out + at, out_stride, blades, MIN(GATE_TILE, n - at));
}
