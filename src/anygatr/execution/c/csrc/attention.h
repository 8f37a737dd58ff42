/* What attention is told; shared by attention.c, which is built for each kind of head, and the pipeline, which calls it. */
#pragma once
#include "simd.h"

/* Channels of x (blades, tokens, channels) and s (tokens, channels) are those of all query heads; keys_x and keys_s have
   those of all key heads, then of all value heads; where both are null, keys and values follow the queries' channels in x
   and s. */
typedef struct {
    const real *x, *s, *keys_x, *keys_s;
    const real *weights;                     /* (learned features, heads, channels of a head) */
    const unsigned char *mask;               /* (key tokens): 0 for padding; null: all are real */
    const long *query_offsets, *key_offsets; /* (samples + 1): where samples begin and end */
    real *out_x, *out_s, *log_sum;           /* mixed channels; (tokens, heads) the logarithm of the sum of exponentials */
    long tokens, key_tokens, samples, heads, key_heads, scalars, threads;
    double scale;
} attention_args;
typedef void attention_function(const attention_args *);

/* Gradients: of the results, and of x, s, keys_x, keys_s as in attention_args; weights (threads, ...) is summed by the
   caller. row_sums (threads, tokens, heads, numbers compared) and dots (tokens, heads) are needed for samples of several key
   blocks. */
typedef struct {
    const real *out_x, *out_s;
    real *x, *s, *keys_x, *keys_s, *weights, *row_sums, *dots;
} attention_grads;
