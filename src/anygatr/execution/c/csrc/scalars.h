/* What scalars (rows, channels) go through in front of a linear map: layer norm or GELU; derivatives give the results again.
 */
#pragma once
#include "gelu.h"

#define LAYER_NORM_EPS 1e-5 /* as torch's layer_norm */

static inline real layer_norm_scale(const real *x, long channels, real *mean) {
    real sum = 0, square = 0;
    for (long i = 0; i < channels; i++) sum += x[i];
    *mean = sum / channels;
    for (long i = 0; i < channels; i++) square += (x[i] - *mean) * (x[i] - *mean);
    return 1 / (real)sqrt(square / channels + LAYER_NORM_EPS);
}

/* Rows with mean 0 and variance 1. */
static void layer_norm(const real *restrict x, real *restrict out, long channels, long rows) {
    for (long r = 0; r < rows; r++, x += channels, out += channels) {
        real mean, scale = layer_norm_scale(x, channels, &mean);
        for (long i = 0; i < channels; i++) out[i] = (x[i] - mean) * scale;
    }
}

/* The gradient of x from that of the result, and the result. */
static void layer_norm_backward(const real *restrict x, const real *restrict grad, real *restrict grad_x, real *restrict out,
                                long channels, long rows) {
    for (long r = 0; r < rows; r++, x += channels, grad += channels, grad_x += channels, out += channels) {
        real mean, scale = layer_norm_scale(x, channels, &mean), sum = 0, dot = 0;
        for (long i = 0; i < channels; i++) sum += grad[i];
        for (long i = 0; i < channels; i++) dot += grad[i] * (out[i] = (x[i] - mean) * scale);
        sum /= channels;
        dot /= channels;
        for (long i = 0; i < channels; i++) grad_x[i] = scale * (grad[i] - sum - out[i] * dot);
    }
}

typedef vec gelu_form(vec, vec *);

/* GELU of n numbers; inlined with a constant form. */
static inline __attribute__((always_inline)) void gelu_forward(gelu_form *gelu, const real *restrict x, real *restrict out,
                                                               long n) {
    long whole = n / LANES * LANES;
    for (long i = 0; i < whole; i += LANES) AT(out + i) = gelu(AT(x + i), 0);
    vec rest = {0};
    copy(x + whole, (real *)&rest, n - whole);
    rest = gelu(rest, 0);
    copy((real *)&rest, out + whole, n - whole);
}

/* The gradient of x from that of the result, and the result. */
static inline __attribute__((always_inline)) void gelu_backward(gelu_form *gelu, const real *restrict x,
                                                                const real *restrict grad, real *restrict grad_x,
                                                                real *restrict out, long n) {
    long whole = n / LANES * LANES;
    vec slope, rest = {0}, rest_grad = {0};
    for (long i = 0; i < whole; i += LANES) {
        AT(out + i) = gelu(AT(x + i), &slope);
        AT(grad_x + i) = slope * AT(grad + i);
    }
    copy(x + whole, (real *)&rest, n - whole);
    copy(grad + whole, (real *)&rest_grad, n - whole);
    rest = gelu(rest, &slope);
    copy((real *)&rest, out + whole, n - whole);
    rest_grad = slope * rest_grad;
    copy((real *)&rest_grad, grad_x + whole, n - whole);
}
