/* Sparse bilinear forms of stacks of multivectors by tables: where unrolled terms (product.c) would build for long. */
#include "product.h"

#define WIDEST 16 /* channels, and SOME tokens, whose sums stay in registers while all terms are added */
#define SOME 4

/* All sums of `width` channels of `tokens` tokens, numbers that the compiler knows where this is called. */
static inline __attribute__((always_inline)) void product_some(const product_plan *p, const real *restrict a, long a_stride,
                                                               const real *restrict b, long b_stride, const real *reference,
                                                               real *restrict out, long out_stride, long channels,
                                                               const int tokens, const int width) {
    long a_token = p->left * channels, b_token = p->right * channels, out_token = p->out * channels;
    for (const product_sum *sum = p->sum; sum < p->sum + p->sums; sum++) {
        real s[SOME][WIDEST] = {{0}};
        for (int e = sum->begin; e < sum->end; e++) {
            const product_entry *entry = p->entry + e;
            const real *x = a + entry->left_blade * a_stride + entry->left * channels, sign = entry->sign;
            const real *y = b + entry->right_blade * b_stride + entry->right * channels;
            for (int t = 0; t < tokens; t++)
                for (int l = 0; l < width; l++) s[t][l] = FMA(sign * x[t * a_token + l], y[t * b_token + l], s[t][l]);
            if (e + 1 == sum->scaled && reference)
                for (int t = 0; t < tokens; t++)
                    for (int l = 0; l < width; l++) s[t][l] *= reference[t];
        }
        real *to = out + sum->blade * out_stride + sum->part * channels;
        for (int t = 0; t < tokens; t++)
            for (int l = 0; l < width; l++) to[t * out_token + l] = s[t][l];
    }
}

#define TOKENS_OF(width)                             \
    for (long t = 0; t < tokens; t += SOME)          \
        if (t + SOME <= tokens) PART(t, SOME, width) \
        else                                         \
            for (long u = t; u < tokens; u++) PART(u, 1, width)
#define PART(t, some, width)                                                                                             \
    product_some(p, a + j + (t) * p->left * channels, a_stride, b + j + (t) * p->right * channels, b_stride,             \
                 join_reference ? join_reference + t : 0, out + j + (t) * p->out * channels, out_stride, channels, some, \
                 width);

EXPORT void product_by_table(const product_plan *p, const real *a, long a_stride, const real *b, long b_stride,
                             const real *join_reference, real *out, long out_stride, long channels, long tokens) {
    long j = 0;
    for (; j + 16 <= channels; j += 16) { TOKENS_OF(16) }
    for (; j + 8 <= channels; j += 8) { TOKENS_OF(8) }
    for (; j + 4 <= channels; j += 4) { TOKENS_OF(4) }
    for (; j < channels; j++) { TOKENS_OF(1) }
}
