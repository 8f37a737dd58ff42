/* One sparse bilinear form of stacks of multivectors, unrolled; generated.h has its terms:
   BLADES, LEFT, RIGHT and OUT multivectors per token and channel, LANES_TOGETHER channels at a time, and
   TERMS(SUM, PLUS, MINUS, SCALE) = SUM(part, blade, PLUS(i, left, j, right) ... SCALE ...) ... */
#include "product.h"

#define A_(i, part) a[i * a_stride + part * channels + l]
#define B_(j, part) b[j * b_stride + part * channels + l]
#define PLUS(i, left, j, right) s = FMA(A_(i, left), B_(j, right), s);
#define MINUS(i, left, j, right) s = FMA(-A_(i, left), B_(j, right), s);
#define SCALE s *= reference;
#define SUM(part, blade, terms)                                  \
    for (int l = 0; l < LANES_TOGETHER; l++) {                   \
        real s = 0;                                              \
        terms out[blade * out_stride + part * channels + l] = s; \
    }

static void some_channels(const real *restrict a, long a_stride, const real *restrict b, long b_stride, real reference,
                          real *restrict out, long out_stride, long channels) {
    TERMS(SUM, PLUS, MINUS, SCALE)
}

static inline void one_token(const real *a, long a_stride, const real *b, long b_stride, real reference, real *out,
                             long out_stride, long channels) {
    for (long j = 0; j < channels; j += LANES_TOGETHER)
        some_channels(a + j, a_stride, b + j, b_stride, reference, out + j, out_stride, channels);
}

EXPORT void product_unrolled(const product_plan *unused, const real *a, long a_stride, const real *b, long b_stride,
                             const real *join_reference, real *out, long out_stride, long channels, long tokens) {
    for (long t = 0; t < tokens; t++)
        one_token(a + t * LEFT * channels, a_stride, b + t * RIGHT * channels, b_stride,
                  join_reference ? join_reference[t] : 1, out + t * OUT * channels, out_stride, channels);
}
