/* The prologue of a linear map: norm, gate or products of the multivectors of a tile, layer norm or GELU of its scalars. */
#pragma once
#include "gate.h"
#include "norm.h"
#include "product.h"
#include "scalars.h"

enum { MV_AS_THEY_ARE, MV_NORM, MV_GATE, MV_PRODUCTS };
enum { S_AS_THEY_ARE, S_NORM, S_GELU_EXACT, S_GELU_TANH };

typedef struct {
    long multivectors, scalars;       /* of the enumerations above */
    long factors, products;           /* multivectors per token and channel in front of and behind MV_PRODUCTS, else 1 */
    const norm_plan *norm;            /* for MV_NORM */
    product_tile *forward, *backward; /* for MV_PRODUCTS */
    const product_plan *forward_plan, *backward_plan;
} prologue;

/* x (blades, tokens, channels_in) to out (blades, tokens, channels); only with a prologue of multivectors. */
static void prologue_forward(const prologue *p, long blades, const real *x, long x_stride, const real *join_reference,
                             real *out, long out_stride, long channels, long tokens) {
    if (p->multivectors == MV_NORM) norm_forward(p->norm, x, x_stride, out, out_stride, channels, tokens);
    if (p->multivectors == MV_GATE) gate_forward(x, x_stride, out, out_stride, blades, tokens * channels);
    if (p->multivectors == MV_PRODUCTS)
        p->forward(p->forward_plan, x, x_stride, x, x_stride, join_reference, out, out_stride, channels / p->products,
                   tokens);
}

/* The gradient of x from that of the result. */
static void prologue_backward(const prologue *p, long blades, const real *x, long x_stride, const real *join_reference,
                              const real *grad, long grad_stride, real *out, long out_stride, long channels, long tokens) {
    if (p->multivectors == MV_NORM)
        norm_backward(p->norm, x, x_stride, grad, grad_stride, out, out_stride, channels, tokens);
    if (p->multivectors == MV_GATE)
        gate_backward(x, x_stride, grad, grad_stride, out, out_stride, blades, tokens * channels);
    if (p->multivectors == MV_PRODUCTS)
        p->backward(p->backward_plan, grad, grad_stride, x, x_stride, join_reference, out, out_stride,
                    channels / p->products, tokens);
}

/* Scalars s (tokens, channels), only with a prologue of scalars. */
static void scalars_forward(const prologue *p, const real *s, real *out, long channels, long tokens) {
    if (!channels) return;
    if (p->scalars == S_NORM) layer_norm(s, out, channels, tokens);
    if (p->scalars == S_GELU_EXACT) gelu_forward(gelu_exact, s, out, channels * tokens);
    if (p->scalars == S_GELU_TANH) gelu_forward(gelu_tanh, s, out, channels * tokens);
}

/* The gradient of s from that of the result, and the result. */
static void scalars_backward(const prologue *p, const real *s, const real *grad, real *grad_s, real *out, long channels,
                             long tokens) {
    if (!channels) return;
    if (p->scalars == S_NORM) layer_norm_backward(s, grad, grad_s, out, channels, tokens);
    if (p->scalars == S_GELU_EXACT) gelu_backward(gelu_exact, s, grad, grad_s, out, channels * tokens);
    if (p->scalars == S_GELU_TANH) gelu_backward(gelu_tanh, s, grad, grad_s, out, channels * tokens);
}
