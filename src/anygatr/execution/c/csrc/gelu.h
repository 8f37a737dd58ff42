/* Both forms of GELU of vectors and their slopes: v times a share that rises from 0 to 1. */
#pragma once
#include "exp.h"

/* exp(z^2) erfc(z) as a polynomial in y, highest power first, where t = 1 / (1 + z / 2) goes from 1/4 (z = 6: erfc is below
   the rounding of 1) to 1 as y goes from -1 to 1. Interpolated at Chebyshev points; tests/native/test_build.py
   compares it with the function. */
#define GELU_LEAST 0.25
/* clang-format off */
#if DOUBLE
static const double ERFC_COEFFICIENTS[] = {
    -3.109700632491164e-10, 1.8149131348515088e-10, 3.4135094835885803e-09, -8.29765669108791e-09, -6.589481610510072e-09,
    8.753444026279429e-08, -1.9831986296385623e-07, -2.830532218032302e-07, 2.83811048548496e-06, -4.270828003915113e-06,
    -2.270015061558059e-05, 0.00010054182979093234, 0.0001335842680148493, -0.001665364357944759, -0.0016702444045379914,
    0.03299342947737938, 0.16940759095448718, 0.42218758361345665, 0.3785374169292398};
#else
static const double ERFC_COEFFICIENTS[] = {
    2.2817609514470816e-06, -4.6834203535401634e-06, -2.214322186217971e-05, 0.00010084521944270076, 0.00013334080252685036,
    -0.0016654760082024085, -0.0016702009595726585, 0.03299344758820589, 0.16940758878293216, 0.42218758274314483,
    0.37853741692924037};
#endif
/* clang-format on */

/* v (1 + erf(v / sqrt(2))) / 2, and its derivative where slope is not null. */
static inline vec gelu_exact(vec v, vec *slope) {
    ivec below = v < 0;
    vec none = {0}, z = select_lanes(below, -v, v) * (real)0.7071067811865476, small = exp_vec(-z * z), t = 1 / (1 + z / 2);
    t = select_lanes(t < (real)GELU_LEAST, none + (real)GELU_LEAST, t);
    vec y = (t - (real)GELU_LEAST) * (real)2.6666666666666665 - 1, p = HORNER(y, ERFC_COEFFICIENTS);
    p *= small / 2;
    vec share = select_lanes(below, p, 1 - p);
    if (slope) *slope = share + v * small * (real)0.3989422804014327; /* 1 / sqrt(2 pi) */
    return v * share;
}

/* v / (1 + exp(-2u)), u = sqrt(2 / pi) (v + 0.044715 v^3), and its derivative where slope is not null. */
static inline vec gelu_tanh(vec v, vec *slope) {
    vec u = (real)1.5957691216057308 * v * (1 + (real)0.044715 * v * v);
    ivec below = u < 0;
    vec one = (vec){0} + 1, small = exp_vec(select_lanes(below, u, -u)), over = 1 / (1 + small);
    vec share = select_lanes(below, small, one) * over, rest = select_lanes(below, one, small) * over;
    vec steep = (real)1.5957691216057308 * (1 + (real)0.134145 * v * v);
    if (slope) *slope = share + v * share * rest * steep;
    return v * share;
}
