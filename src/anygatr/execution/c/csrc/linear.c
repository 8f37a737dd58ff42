/* Forward of a linear map tile by tile, and its gradients. Sums begin with residual and bias and grow term after term. */
#include "linear.h"

#include <omp.h>

#include "gemm.h"

#define SOME 8 /* tokens whose inputs stay in the first cache while their prologue is done again and differentiated */
#define LINES_AHEAD 16 /* cache lines of the next tile that are fetched before each product of a few rows */

/* Blades of a tile: blade b is at blades.at + b * blades.stride. */
typedef struct {
    const real *at;
    long stride;
} blade_view;
#define BLADE(view, b) ((view).at + (b) * (view).stride)

static void add(const real *restrict x, real *restrict out, long n) {
    for (long i = 0; i < n; i++) out[i] += x[i];
}
static void add_blades(const real *x, long x_stride, real *out, long out_stride, long blades, long n) {
    for (long b = 0; b < blades; b++) add(x + b * x_stride, out + b * out_stride, n);
}
static void copy_or_clear(const real *from, real *to, long n) {
    if (from) copy(from, to, n);
    else clear(to, n);
}

/* in (sources, width) to out (targets, width), rows `stride` apart; longer lists are summed in registers. */
static void combine(const combination *list, long count, long targets, const real *restrict in, long in_stride,
                    real *restrict out, long out_stride, long width) {
    for (long target = 0, first = 0, last; target < targets; target++, first = last) {
        for (last = first; last < count && list[last].target == target;) last++;
        const combination *own = list + first;
        real *to = out + target * out_stride;
        long whole = 0;
        if (first == last) {
            clear(to, width);
            continue;
        }
        const real *one = in + own[0].source * in_stride, factor = own[0].factor;
        if (last == first + 1) {
            for (long i = 0; i < width; i++) to[i] = factor * one[i];
            continue;
        }
        const real *two = in + own[1].source * in_stride, second = own[1].factor;
        if (last == first + 2) {
            for (long i = 0; i < width; i++) to[i] = factor * one[i] + second * two[i];
            continue;
        }
        for (; whole + LANES <= width; whole += LANES) {
            vec sum = factor * AT(one + whole);
            for (long e = 1; e < last - first; e++) sum += (real)own[e].factor * AT(in + own[e].source * in_stride + whole);
            AT(to + whole) = sum;
        }
        for (long i = whole; i < width; i++) {
            real sum = factor * one[i];
            for (long e = 1; e < last - first; e++) sum += (real)own[e].factor * in[own[e].source * in_stride + i];
            to[i] = sum;
        }
    }
}

/* A sum of products a b of matrices, a (m, k) with rows together and b (k, n) with rows ldb apart. */
typedef struct {
    const real *a, *b;
    long k;
} summand;

/* What a sum begins with: a row for all tokens and a matrix (m, n), either may be null; its rows are *ld apart. */
static const real *sum_start(const real *row, const real *residual, long m, long n, real *part, long *ld) {
    *ld = residual ? n : 0;
    if (!residual || !row) return residual ? residual : row;
    for (long r = 0; r < m; r++)
        for (long i = 0; i < n; i++) part[r * n + i] = row[i] + residual[r * n + i];
    return part;
}

/* out (m, n) = row + residual + sum of products. It grows in `part`, in the cache: only the last one writes to out. */
static void sum_products(const summand *terms, long count, long m, long n, long ldb, const real *row, const real *residual,
                         real *out, real *part, lines *soon) {
    if (!count) {
        copy_or_clear(residual, out, m * n);
        return;
    }
    long ld;
    const real *start = sum_start(row, residual, m, n, part, &ld);
    for (long t = 0; t < count; t++, start = part, ld = n)
        multiply(m, n, terms[t].k, terms[t].a, terms[t].k, 1, terms[t].b, ldb, t + 1 < count ? part : out, n, start, ld,
                 soon);
}

/* Prepared weights, for y = x w with rows padded to half vectors: mv (pairs, mv_in, mv_ld), s_to_mv (invariants, s_in,
 * mv_ld), mv_to_s (invariants, mv_in, s_ld), ... */
static linear_arrays prepared_at(const linear_plan *plan, const linear_width *width, real *w, int biased) {
    long mv_ld = UP_HALF(width->mv_out), s_ld = UP_HALF(width->s_out);
    linear_arrays p = {.mv = w};
    p.s_to_mv = p.mv + plan->pairs * width->mv_in * mv_ld;
    p.mv_to_s = p.s_to_mv + plan->invariants * width->s_in * mv_ld;
    p.s_to_s = p.mv_to_s + plan->invariants * width->mv_in * s_ld;
    if (biased) p.bias_mv = p.s_to_s + width->s_in * s_ld, p.bias_s = p.bias_mv + plan->invariants * mv_ld;
    return p;
}

long linear_prepared_size(const linear_plan *plan, const linear_width *width) {
    long mv_ld = UP_HALF(width->mv_out), s_ld = UP_HALF(width->s_out), j = plan->invariants;
    return plan->pairs * width->mv_in * mv_ld + j * (width->s_in * mv_ld + width->mv_in * s_ld + mv_ld) +
           (width->s_in + 1) * s_ld;
}

/* Transpose, mix and pad the weights, in PREPARE_PIECES pieces that may be done at the same time. */
void linear_prepare(const linear_plan *plan, const linear_width *width, const linear_weights *weights, long piece,
                    real *prepared) {
    long mv_in = width->mv_in, s_in = width->s_in, mv_out = width->mv_out, s_out = width->s_out, maps = plan->maps;
    long mv_ld = UP_HALF(mv_out), s_ld = UP_HALF(s_out);
    linear_arrays p = prepared_at(plan, width, prepared, 1);
    if (piece) {
        transpose(weights->s_to_s, s_in, s_out, s_in, p.s_to_s, s_ld);
        if (weights->bias_mv) pad_rows(weights->bias_mv, plan->invariants, mv_out, p.bias_mv, mv_ld);
        else clear(p.bias_mv, plan->invariants * mv_ld);
        if (weights->bias_s) pad_rows(weights->bias_s, 1, s_out, p.bias_s, s_ld);
        else clear(p.bias_s, s_ld);
        return;
    }
    /* (mv_out, mv_in, maps) to (mv_in, maps, mv_ld): weights are mixed as rows of output channels */
    real *turned = buffer(mv_in * maps * mv_ld);
    transpose(weights->mv, mv_in * maps, mv_out, mv_in * maps, turned, mv_ld);
    for (long i = 0; i < mv_in; i++)
        combine(plan->mix, plan->mixings, plan->pairs, turned + i * maps * mv_ld, mv_ld, p.mv + i * mv_ld, mv_in * mv_ld,
                mv_ld);
    free(turned);
    for (long j = 0; j < plan->invariants; j++) {
        transpose(weights->s_to_mv + j * mv_out * s_in, s_in, mv_out, s_in, p.s_to_mv + j * s_in * mv_ld, mv_ld);
        transpose(weights->mv_to_s + j * s_out * mv_in, mv_in, s_out, mv_in, p.mv_to_s + j * mv_in * s_ld, s_ld);
    }
}

/* How many numbers linear_tile needs to work in. */
long linear_workspace_size(const linear_plan *plan, const prologue *before, const linear_width *width) {
    long blades = plan->blades * TOKENS, size = TOKENS * MAX(width->mv_out, width->s_out);
    if (before->multivectors) size += blades * width->mv_in;
    if (before->scalars) size += TOKENS * width->s_in;
    return size;
}

/* The next n numbers of a workspace, null where they are not needed. */
static real *take(real **workspace, long n, long needed) {
    real *out = *workspace;
    if (!needed) return 0;
    *workspace += n;
    return out;
}

/* Forward of a tile: y and t = map(prologue(x, s)) + residual, with weights that linear_prepare made. */
void linear_tile(const linear_plan *plan, const prologue *before, const linear_width *width, const real *prepared,
                 int biased, const tile_io *io, real *workspace) {
    long mv_in = width->mv_in, s_in = width->s_in, mv_out = width->mv_out, s_out = width->s_out, m = io->tokens;
    long mv_ld = UP_HALF(mv_out), s_ld = UP_HALF(s_out), x_in = mv_in / before->products * before->factors;
    linear_arrays w = prepared_at(plan, width, (real *)prepared, biased);
    real *x_after = take(&workspace, plan->blades * TOKENS * mv_in, before->multivectors);
    real *s_after = take(&workspace, TOKENS * s_in, before->scalars), *part = workspace;

    blade_view x = {io->x, io->x_apart * x_in};
    const real *s = io->s;
    if (before->multivectors) {
        prologue_forward(before, plan->blades, x.at, x.stride, io->join_reference, x_after, TOKENS * mv_in, mv_in, m);
        x = (blade_view){x_after, TOKENS * mv_in};
    }
    if (before->scalars) scalars_forward(before, s, s_after, s_in, m), s = s_after;

    const real *residual = io->residual_x;
    summand terms[plan->terms + plan->invariants + 1];
    lines soon;
    const linear_term *term = plan->by_target, *end = term + plan->terms;
    for (long b = 0; b < plan->blades; b++) {
        long count = 0, j = plan->writes[b] ? plan->invariant_of[b] : -1;
        const real *bias = j >= 0 && biased ? w.bias_mv + j * mv_ld : 0;
        if (j >= 0) terms[count++] = (summand){s, w.s_to_mv + j * s_in * mv_ld, s_in};
        for (; term < end && term->target == b; term++)
            terms[count++] = (summand){BLADE(x, term->source), w.mv + term->pair * mv_in * mv_ld, mv_in};
        soon = LINES(io->x + (b * io->x_apart + m) * x_in, io->next * x_in, 0, 1, LINES_AHEAD, 0);
        sum_products(terms, count, m, mv_out, mv_ld, bias, residual ? residual + b * io->residual_apart * mv_out : 0,
                     io->y + b * io->y_apart * mv_out, part, &soon);
    }
    long count = 0;
    if (plan->makes_scalars) {
        terms[count++] = (summand){s, w.s_to_s, s_in};
        for (long j = 0; j < plan->invariants; j++)
            if (plan->reads[plan->invariant[j]])
                terms[count++] = (summand){BLADE(x, plan->invariant[j]), w.mv_to_s + j * mv_in * s_ld, mv_in};
    }
    soon = LINES(io->s + m * s_in, io->next * s_in, 0, 1, LINES_AHEAD, 0);
    sum_products(terms, count, m, s_out, s_ld, biased ? w.bias_s : 0, io->residual_s, io->t, part, &soon);
}

/* What all tiles of a backward pass share: sizes, and weights for grad_x = grad_y w, mv (pairs, mv_out, mv_ld),
   s_to_mv (invariants, mv_out, s_ld), mv_to_s (invariants, s_out, mv_ld), s_to_s (s_out, s_ld). */
typedef struct {
    const linear_plan *plan;
    const prologue *before;
    const linear_backward_io *io;
    linear_weights w;
    long tokens, mv_in, s_in, mv_out, s_out, mv_ld, s_ld, x_in; /* ld: mv_in and s_in padded */
    int turned; /* gradients of mv as (mv_in, mv_out): columns are the wider side, fewer loads for as many sums */
} backward_pass;

/* Parts of a thread's workspace, for a tile; those that are not needed are null. */
typedef struct {
    real *all, *part, *x_after, *s_after, *grad_x_after, *grad_s_after, *x_padded, *s_padded;
} tile_buffers;

static tile_buffers make_buffers(const backward_pass *p) {
    long in = p->plan->blades * TOKENS * p->mv_in, s_in = TOKENS * p->s_in;
    long mv = p->before->multivectors != 0, s = p->before->scalars != 0;
    long x_pad = p->mv_in < p->mv_ld ? p->plan->blades * TOKENS * p->mv_ld : 0,
         s_pad = p->s_in < p->s_ld ? TOKENS * p->s_ld : 0;
    long part = TOKENS * MAX(p->mv_in, p->s_in);
    real *at = buffer(part + 2 * mv * in + 2 * s * s_in + x_pad + s_pad);
    tile_buffers t = {.all = at};
    t.part = take(&at, part, 1);
    t.x_after = take(&at, in, mv), t.grad_x_after = take(&at, in, mv);
    t.s_after = take(&at, s_in, s), t.grad_s_after = take(&at, s_in, s);
    t.x_padded = take(&at, x_pad, x_pad != 0), t.s_padded = take(&at, s_pad, s_pad != 0);
    return t;
}

/* The gradients of a tile's inputs as the map sees them: behind the prologue. */
static void grad_inputs(const backward_pass *p, const tile_buffers *t, blade_view grad_y, long at, long m) {
    const linear_plan *plan = p->plan;
    const linear_backward_io *io = p->io;
    long n = p->tokens, next = MIN(TOKENS, n - at - m), direct = !p->before->multivectors;
    const real *grad_t = io->grad_t + at * p->s_out;
    real *grad_x = direct ? io->grad_x + at * p->mv_in : t->grad_x_after;
    real *grad_s = p->before->scalars ? t->grad_s_after : io->grad_s + at * p->s_in;
    long stride = (direct ? n : TOKENS) * p->mv_in;
    const real *residual_x = direct && io->grad_residual_x ? io->grad_residual_x + at * p->mv_in : 0;
    const real *residual_s = !p->before->scalars && io->grad_residual_s ? io->grad_residual_s + at * p->s_in : 0;
    summand terms[plan->terms + plan->invariants + 1];
    lines soon;
    const linear_term *term = plan->by_source, *end = term + plan->terms;
    for (long b = 0; b < plan->blades; b++) {
        long count = 0, j = plan->reads[b] && plan->makes_scalars ? plan->invariant_of[b] : -1;
        if (j >= 0) terms[count++] = (summand){grad_t, p->w.mv_to_s + j * p->s_out * p->mv_ld, p->s_out};
        for (; term < end && term->source == b; term++)
            terms[count++] = (summand){BLADE(grad_y, term->target), p->w.mv + term->pair * p->mv_out * p->mv_ld, p->mv_out};
        soon = LINES(io->grad_y + (b * n + at + m) * p->mv_out, next * p->mv_out, 0, 1, LINES_AHEAD, 0);
        sum_products(terms, count, m, p->mv_in, p->mv_ld, 0, residual_x ? residual_x + b * stride : 0, grad_x + b * stride,
                     t->part, &soon);
    }
    long count = 0;
    if (plan->makes_scalars) terms[count++] = (summand){grad_t, p->w.s_to_s, p->s_out};
    for (long j = 0; j < plan->invariants; j++)
        if (plan->writes[plan->invariant[j]])
            terms[count++] = (summand){BLADE(grad_y, plan->invariant[j]), p->w.s_to_mv + j * p->mv_out * p->s_ld, p->mv_out};
    soon = LINES(io->grad_t + (at + m) * p->s_out, next * p->s_out, 0, 1, LINES_AHEAD, 0);
    sum_products(terms, count, m, p->s_in, p->s_ld, 0, residual_s, grad_s, t->part, &soon);
}

/* The gradients of a tile's inputs through the prologue, whose results are made again meanwhile. */
static void grad_prologue(const backward_pass *p, const tile_buffers *t, long at, long m) {
    const linear_plan *plan = p->plan;
    const prologue *before = p->before;
    const linear_backward_io *io = p->io;
    long n = p->tokens, ci = p->mv_in, cx = p->x_in, si = p->s_in;
    for (long i = 0, some; before->multivectors && i < m; i += some) {
        some = MIN(SOME, m - i);
        const real *x = io->x + (at + i) * cx, *reference = io->join_reference ? io->join_reference + at + i : 0;
        prologue_forward(before, plan->blades, x, n * cx, reference, t->x_after + i * ci, TOKENS * ci, ci, some);
        if (!io->grad_x) continue;
        real *grad_x = io->grad_x + (at + i) * cx;
        prologue_backward(before, plan->blades, x, n * cx, reference, t->grad_x_after + i * ci, TOKENS * ci, grad_x, n * cx,
                          ci, some);
        if (io->grad_residual_x)
            add_blades(io->grad_residual_x + (at + i) * cx, n * cx, grad_x, n * cx, plan->blades, some * cx);
    }
    if (before->scalars && si) {
        if (io->grad_s) scalars_backward(before, io->s + at * si, t->grad_s_after, io->grad_s + at * si, t->s_after, si, m);
        else scalars_forward(before, io->s + at * si, t->s_after, si, m);
        if (io->grad_s && io->grad_residual_s) add(io->grad_residual_s + at * si, io->grad_s + at * si, m * si);
    }
}

static void add_rows(const real *x, long rows, long width, real *sum) {
    for (long r = 0; r < rows; r++)
        for (long i = 0; i < width; i++) sum[i] += x[r * width + i];
}

/* Add what a tile contributes to the gradients of the weights. */
static void grad_weights(const backward_pass *p, const tile_buffers *t, blade_view grad_y, const linear_arrays *sums,
                         long at, long m) {
    const linear_plan *plan = p->plan;
    const linear_backward_io *io = p->io;
    long n = p->tokens, next = MIN(TOKENS, n - at - m), ci = p->mv_in, co = p->mv_out, so = p->s_out;
    const real *grad_t = io->grad_t + at * so, *s = p->before->scalars ? t->s_after : io->s + at * p->s_in;
    blade_view x = {io->x + at * ci, n * ci};
    if (p->before->multivectors) x = (blade_view){t->x_after, TOKENS * ci};
    blade_view padded = x;
    if (t->s_padded) pad_rows(s, m, p->s_in, t->s_padded, p->s_ld), s = t->s_padded;
    if (t->x_padded) {
        padded = (blade_view){t->x_padded, TOKENS * p->mv_ld};
        for (long b = 0; b < plan->blades; b++)
            if (plan->reads[b]) pad_rows(BLADE(x, b), m, ci, t->x_padded + b * padded.stride, p->mv_ld);
    }
    lines soon = {0};
    for (long i = 0; i < plan->terms; i++) {
        const linear_term *term = plan->in_order + i;
        real *sum = sums->mv + term->pair * co * p->mv_ld;
        const real *grad = BLADE(grad_y, term->target);
        if (i < plan->blades) soon = LINES(io->x + (i * n + at + m) * p->x_in, next * p->x_in, 0, 1, LINES_AHEAD, 0);
        if (p->turned) multiply(ci, co, m, BLADE(x, term->source), 1, ci, grad, co, sum, co, sum, co, &soon);
        else
            multiply(co, p->mv_ld, m, grad, 1, co, BLADE(padded, term->source), p->mv_ld, sum, p->mv_ld, sum, p->mv_ld,
                     &soon);
    }
    soon = LINES(io->s + (at + m) * p->s_in, next * p->s_in, 0, 1, LINES_AHEAD, 0);
    for (long j = 0; j < plan->invariants; j++) {
        if (!plan->writes[plan->invariant[j]]) continue;
        const real *grad = BLADE(grad_y, plan->invariant[j]);
        real *sum = sums->s_to_mv + j * co * p->s_ld;
        multiply(co, p->s_ld, m, grad, 1, co, s, p->s_ld, sum, p->s_ld, sum, p->s_ld, &soon);
        add_rows(grad, m, co, sums->bias_mv + j * co);
    }
    if (!plan->makes_scalars) return;
    for (long j = 0; j < plan->invariants; j++) {
        if (!plan->reads[plan->invariant[j]]) continue;
        real *sum = sums->mv_to_s + j * so * p->mv_ld;
        multiply(so, p->mv_ld, m, grad_t, 1, so, BLADE(padded, plan->invariant[j]), p->mv_ld, sum, p->mv_ld, sum, p->mv_ld,
                 &soon);
    }
    multiply(so, p->s_ld, m, grad_t, 1, so, s, p->s_ld, sums->s_to_s, p->s_ld, sums->s_to_s, p->s_ld, &soon);
    add_rows(grad_t, m, so, sums->bias_s);
}

/* (pairs, ...) as gradients of pairs are summed, to mv (mv_out, mv_in, maps). */
static void unmix(const backward_pass *p, const real *sums, real *mv) {
    const linear_plan *plan = p->plan;
    long maps = plan->maps, ci = p->mv_in, co = p->mv_out, each = co * p->mv_ld;
    real *rows = buffer(maps * MAX(p->mv_ld, ci * co));
    if (p->turned) {
        for (long i = 0; i < ci; i++)
            combine(plan->unmix, plan->mixings, maps, sums + i * co, each, rows + i * maps * co, co, co);
        transpose(rows, co, ci * maps, co, mv, ci * maps);
    } else {
        for (long o = 0; o < co; o++) {
            combine(plan->unmix, plan->mixings, maps, sums + o * p->mv_ld, each, rows, p->mv_ld, p->mv_ld);
            transpose(rows, p->mv_ld, maps, ci, mv + o * ci * maps, maps);
        }
    }
    free(rows);
}

/* sum (rows, width) += part (rows, ld); the first part is written over what was there. */
static void add_part(const real *part, long rows, long width, long ld, real *sum, int first) {
    for (long r = 0; r < rows; r++)
        for (long i = 0; i < width; i++) sum[r * width + i] = (first ? 0 : sum[r * width + i]) + part[r * ld + i];
}

/* The rows of a weight padded, or the weight itself where they need none. */
static const real *padded_or_same(const real *from, long rows, long width, real *to, long ld) {
    if (width == ld) return from;
    pad_rows(from, rows, width, to, ld);
    return to;
}

/* The gradients of a map with its prologue: x (blades, tokens, channels), s (tokens, s_in) and the weights. */
EXPORT void linear_backward(const linear_plan *plan, const prologue *before, const linear_width *width,
                            const linear_weights *weights, const linear_backward_io *io, const linear_arrays *grads,
                            long tokens, long threads) {
    long mv_in = width->mv_in, s_in = width->s_in, mv_out = width->mv_out, s_out = width->s_out, j = plan->invariants;
    long mv_ld = UP_HALF(mv_in), s_ld = UP_HALF(s_in), tile_count = (tokens + TOKENS - 1) / TOKENS;
    backward_pass p = {plan,
                       before,
                       io,
                       {0},
                       tokens,
                       mv_in,
                       s_in,
                       mv_out,
                       s_out,
                       mv_ld,
                       s_ld,
                       .x_in = mv_in / before->products * before->factors,
                       .turned = mv_out > mv_in && mv_out == UP_HALF(mv_out)};
    long mv_size = plan->pairs * mv_out * mv_ld, s_to_mv_size = j * mv_out * s_ld, mv_to_s_size = j * s_out * mv_ld;
    long weight_size = mv_size + s_to_mv_size + mv_to_s_size + s_out * s_ld;
    long sum_size = weight_size + j * mv_out + s_out, wanted = io->grad_x || io->grad_s;
    real *w = buffer(weight_size), *sums = buffer(threads * sum_size);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        long thread = omp_get_thread_num();
        linear_arrays own = {.mv = sums + thread * sum_size};
        own.s_to_mv = own.mv + mv_size, own.mv_to_s = own.s_to_mv + s_to_mv_size, own.s_to_s = own.mv_to_s + mv_to_s_size;
        own.bias_mv = own.s_to_s + s_out * s_ld, own.bias_s = own.bias_mv + j * mv_out;
        /* the first thread adds up in the results themselves where their rows need no padding */
        if (!thread && s_in == s_ld) own.s_to_mv = grads->s_to_mv, own.s_to_s = grads->s_to_s;
        if (!thread && mv_in == mv_ld) own.mv_to_s = grads->mv_to_s;
        clear(own.mv, mv_size);
        clear(own.s_to_mv, s_to_mv_size);
        clear(own.mv_to_s, mv_to_s_size);
        clear(own.s_to_s, s_out * s_ld);
        clear(own.bias_mv, j * mv_out + s_out);
#pragma omp single nowait
        if (wanted) {
            real *turned = buffer(plan->maps * mv_ld);
            for (long o = 0; o < mv_out; o++) {
                transpose(weights->mv + o * mv_in * plan->maps, plan->maps, mv_in, plan->maps, turned, mv_ld);
                combine(plan->mix, plan->mixings, plan->pairs, turned, mv_ld, w + o * mv_ld, mv_out * mv_ld, mv_ld);
            }
            free(turned);
        }
#pragma omp single
        if (wanted) {
            real *to = w + mv_size;
            p.w.mv = w;
            p.w.s_to_mv = padded_or_same(weights->s_to_mv, j * mv_out, s_in, to, s_ld);
            p.w.mv_to_s = padded_or_same(weights->mv_to_s, j * s_out, mv_in, to + s_to_mv_size, mv_ld);
            p.w.s_to_s = padded_or_same(weights->s_to_s, s_out, s_in, to + s_to_mv_size + mv_to_s_size, s_ld);
        }
        tile_buffers buffers = make_buffers(&p);
#pragma omp for schedule(static)
        for (long tile = 0; tile < tile_count; tile++) {
            long at = tile * TOKENS, m = MIN(TOKENS, tokens - at);
            blade_view grad_y = {io->grad_y + at * mv_out, tokens * mv_out};
            if (wanted) grad_inputs(&p, &buffers, grad_y, at, m);
            grad_prologue(&p, &buffers, at, m);
            grad_weights(&p, &buffers, grad_y, &own, at, m);
        }
        free(buffers.all);
        long present = omp_get_num_threads(); /* it may be fewer than were asked for */
#pragma omp single nowait
        {
            for (long who = 1; who < present; who++) add(sums + who * sum_size, sums, mv_size);
            unmix(&p, sums, grads->mv);
        }
#pragma omp single nowait
        for (long who = 0; who < present; who++) {
            const real *s_to_mv = sums + who * sum_size + mv_size, *mv_to_s = s_to_mv + s_to_mv_size;
            const real *s_to_s = mv_to_s + mv_to_s_size, *bias = s_to_s + s_out * s_ld;
            if (who || s_in != s_ld) add_part(s_to_mv, j * mv_out, s_in, s_ld, grads->s_to_mv, !who);
            if (who || mv_in != mv_ld) add_part(mv_to_s, j * s_out, mv_in, mv_ld, grads->mv_to_s, !who);
            if (who || s_in != s_ld) add_part(s_to_s, s_out, s_in, s_ld, grads->s_to_s, !who);
            if (grads->bias_mv) add_part(bias, 1, j * mv_out, 0, grads->bias_mv, !who);
            if (grads->bias_s) add_part(bias + j * mv_out, 1, s_out, 0, grads->bias_s, !who);
        }
    }
    free(w);
    free(sums);
}
