/* The most general equivariant linear map of multivectors and scalars, given by tables: one build serves every geometry. */
#pragma once
#include "prologue.h"

/* Rows of numbers as linear combinations of others: out[target] += factor * in[source]. Lists are sorted by target. */
typedef struct {
    int target, source;
    double factor;
} combination;

/* y[target] += weight(pair) x[source], blades; a pair is an effective weight times a factor. */
typedef struct {
    int pair, target, source;
} linear_term;

typedef struct {
    long blades, maps, pairs, invariants, terms, mixings, makes_scalars;
    const int *invariant;           /* (invariants): the blades that mix with scalars */
    const int *invariant_of;        /* (blades): which of them a blade is, or -1 */
    const int *reads, *writes;      /* (blades): 0 for blades that are taken for zero or left zero */
    const linear_term *in_order;    /* (terms): in the order in which gradients of weights are summed */
    const linear_term *by_target;   /* (terms): the same sorted by target */
    const linear_term *by_source;   /* and by source */
    const combination *mix, *unmix; /* (mixings): weights of pairs from weights of maps, and the transpose */
} linear_plan;

typedef struct {
    long mv_in, s_in, mv_out, s_out;
} linear_width;

/* mv (mv_out, mv_in, maps), s_to_mv (invariants, mv_out, s_in), mv_to_s (invariants, s_out, mv_in), s_to_s (s_out, s_in),
   bias_mv (invariants, mv_out), bias_s (s_out); both biases may be null. */
typedef struct {
    const real *mv, *s_to_mv, *mv_to_s, *s_to_s, *bias_mv, *bias_s;
} linear_weights;
/* The same for what is written: gradients, sums, weights with padded rows. */
typedef struct {
    real *mv, *s_to_mv, *mv_to_s, *s_to_s, *bias_mv, *bias_s;
} linear_arrays;

/* Where a map finds a tile of tokens and puts its results: x, residual_x and y are (blades, tokens, channels) with blades so
   many tokens apart; s, residual_s and t are (tokens, channels). `next` tokens follow in the next tile. */
typedef struct {
    const real *x, *s, *join_reference, *residual_x, *residual_s;
    real *y, *t;
    long x_apart, residual_apart, y_apart, tokens, next;
} tile_io;

/* What the gradients of a map are made from, and where those of its inputs go (both null: not wanted) with grad_residual
 * added. */
typedef struct {
    const real *x, *s, *join_reference, *grad_y, *grad_t, *grad_residual_x, *grad_residual_s;
    real *grad_x, *grad_s;
} linear_backward_io;

/* Forward of a map: prepare its weights once, then any tiles; sizes are in numbers. */
long linear_prepared_size(const linear_plan *plan, const linear_width *width);
long linear_workspace_size(const linear_plan *plan, const prologue *before, const linear_width *width);
#define PREPARE_PIECES 2
void linear_prepare(const linear_plan *plan, const linear_width *width, const linear_weights *weights, long piece,
                    real *prepared);
void linear_tile(const linear_plan *plan, const prologue *before, const linear_width *width, const real *prepared,
                 int biased, const tile_io *io, real *workspace);
