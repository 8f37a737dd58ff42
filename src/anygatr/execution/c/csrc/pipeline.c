/* Linear maps and attention one after the other on tiles of tokens: what is made between need not leave the cache. */
#include "attention.h"
#include "gemm.h"
#include "linear.h"

/* A linear map, or attention (plan is null) on samples that are whole in a tile. Results without an output buffer (y and t
   are null) stay in the workspace, for the next stage alone. */
typedef struct {
    const linear_plan *plan;
    const prologue *before;
    attention_function *attend;
    linear_weights weights;
    const real *feature_weights;
    const long *offsets; /* of the samples of a tile */
    double scale;
    long length, heads, key_heads;
    const real *join_reference;
    real *y, *t;
    long takes_side_scalars; /* side_s instead of the scalars made last */
    long blades;
    linear_width width;
} stage;
#define HAS_OUTPUT(stage) ((stage).y || (stage).t) /* either may be empty, and what is empty has no address */

static void attend_tile(const stage *now, const tile_io *io, real *log_sum) {
    attention_args args = {.x = io->x,
                           .s = io->s,
                           .weights = now->feature_weights,
                           .query_offsets = now->offsets,
                           .key_offsets = now->offsets,
                           .out_x = io->y,
                           .out_s = io->t,
                           .log_sum = log_sum,
                           .tokens = io->tokens,
                           .key_tokens = io->tokens,
                           .samples = io->tokens / now->length,
                           .heads = now->heads,
                           .key_heads = now->key_heads,
                           .scalars = now->width.s_out / now->heads,
                           .threads = 1,
                           .scale = now->scale};
    now->attend(&args);
}

/* x (blades, tokens, channels) and s (tokens, channels) through all stages, `tile` tokens at a time; the residual is added
   to the last results. */
EXPORT void pipeline(const stage *stages, const real *x, const real *s, const real *side_s, const real *residual_x,
                     const real *residual_s, long count, long x_channels, long s_channels, long tokens, long tile,
                     long threads) {
    long tile_count = (tokens + tile - 1) / tile, at_weights[count + 1], workspace_size = 0, between = 0;
    at_weights[0] = 0;
    for (long i = 0; i < count; i++) {
        const stage *now = stages + i;
        long maps = now->plan != 0;
        at_weights[i + 1] = at_weights[i] + (maps ? UP(linear_prepared_size(now->plan, &now->width)) : 0);
        long size = maps ? linear_workspace_size(now->plan, now->before, &now->width) : tile * now->heads;
        workspace_size = MAX(workspace_size, UP(size));
        between += HAS_OUTPUT(*now) ? 0 : tile * (now->blades * now->width.mv_out + now->width.s_out);
    }
    real *prepared = buffer(at_weights[count]);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        real *workspace = buffer(workspace_size + between);
#pragma omp for schedule(dynamic)
        for (long piece = 0; piece < PREPARE_PIECES * count; piece++) {
            long i = piece / PREPARE_PIECES;
            if (stages[i].plan)
                linear_prepare(stages[i].plan, &stages[i].width, &stages[i].weights, piece % PREPARE_PIECES,
                               prepared + at_weights[i]);
        }
#pragma omp for schedule(static)
        for (long number = 0; number < tile_count; number++) {
            long at = number * tile, m = MIN(tile, tokens - at);
            tile_io io = {.x = x + at * x_channels,
                          .s = s + at * s_channels,
                          .x_apart = tokens,
                          .tokens = m,
                          .next = MIN(tile, tokens - at - m)};
            real *spare = workspace + workspace_size;
            for (long i = 0; i < count; i++) {
                const stage *now = stages + i;
                long mv_out = now->width.mv_out, s_out = now->width.s_out;
                if (now->takes_side_scalars) io.s = side_s + at * now->width.s_in;
                io.join_reference = now->join_reference ? now->join_reference + at : 0;
                if (HAS_OUTPUT(*now)) {
                    io.y = now->y + at * mv_out, io.y_apart = tokens, io.t = now->t + at * s_out;
                } else {
                    io.y = spare, io.y_apart = m, io.t = io.y + now->blades * m * mv_out;
                    spare = io.t + m * s_out;
                }
                if (i == count - 1) {
                    io.residual_x = residual_x ? residual_x + at * mv_out : 0;
                    io.residual_s = residual_s ? residual_s + at * s_out : 0;
                    io.residual_apart = tokens;
                }
                int biased = now->weights.bias_mv || now->weights.bias_s;
                if (!now->plan) attend_tile(now, &io, workspace);
                else linear_tile(now->plan, now->before, &now->width, prepared + at_weights[i], biased, &io, workspace);
                io.x = io.y, io.x_apart = io.y_apart, io.s = io.t, io.next = 0;
            }
        }
        free(workspace);
    }
    free(prepared);
}
