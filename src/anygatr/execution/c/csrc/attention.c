/* Attention from channels to channels: rows, logits, weights and mixtures of a block of keys never leave the cache.

   Built for each kind of head. generated.h has BLADES, HEAD (multivector channels of a head), COMPARED and MIXED (numbers
   per channel in rows of queries and keys, and of values), LEARNED (features with weights) and the features themselves:
   QUERY_BLADES, KEY_BLADES and VALUE_BLADES, lists of {place, blade, factor, adds} for numbers that are one blade,
   DISTANCES(D) = D(axes, place, weight_blade, eps, learned, assign) ..., axes(M) = M(axis, blade, sign, assign) ..., where
   `adds` and += are for features whose blade has a gradient already; UNREAD, VALUE_UNREAD, lists of blades without. */
#include "attention.h"

#include <omp.h>

#include "exp.h"
#include "gemm.h"

#define QUERIES 64     /* rows of queries of a block; with KEYS keys and the logits they fit the second cache */
#define CHUNK 2048     /* rows of queries that a thread takes at a time */
#define LINES_AHEAD 32 /* cache lines of the next sample that are fetched before each product of a few rows */
#define MASKED ((real) - 1e30)
#define LOG(x) (sizeof(real) == sizeof(float) ? logf(x) : log(x))

/* Rows of numbers that the channels of heads become. One loop for each blade: in a loop over several, compilers check at run
   time whether the blades overlap. */
#define EACH                         \
    for (long r = 0; r < count; r++) \
        for (int i = 0; i < HEAD; i++)
#define CHANNEL(x, blade) x[blade * stride + r * HEAD + i]
#define NUMBER(row, place) row[r * ld + (place) * HEAD + i]
#define FEATURE_WEIGHT(w, learned) w[(learned * heads + head + r) * HEAD + i]

typedef struct {
    int place, blade, adds;
    real factor;
} one_blade;
static const one_blade query_blades[] = {QUERY_BLADES}, key_blades[] = {KEY_BLADES}, value_blades[] = {VALUE_BLADES};
static const int unread[] = {UNREAD}, value_unread[] = {VALUE_UNREAD};
#define COUNT(list) ((int)(sizeof(list) / sizeof *list))
#define BLADES_ROW(list)                                         \
    for (const one_blade *b = list; b < list + COUNT(list); b++) \
        EACH NUMBER(out, b->place) = b->factor * CHANNEL(x, b->blade);
#define BLADES_GRAD(list)                                                                  \
    for (const one_blade *b = list; b < list + COUNT(list); b++)                           \
        if (b->adds) EACH CHANNEL(grad_x, b->blade) += b->factor * NUMBER(grad, b->place); \
        else EACH CHANNEL(grad_x, b->blade) = b->factor * NUMBER(grad, b->place);
#define ZERO(list) \
    for (int b = 0; b < COUNT(list); b++) EACH CHANNEL(grad_x, list[b]) = 0;

/* Minus the squared distance of points p with homogeneous weight v: with u = v / (v^2 + eps), W = v u and P = p u, a query
   is m (|P|^2, W^2, W P) with its learned weight m, a key (-W^2, -|P|^2, 2 W P). `key` is a constant. */
#define POINT(axis, blade, sign, assign) real p##axis = sign * CHANNEL(x, blade), P##axis = p##axis * u;
#define SQUARE(axis, blade, sign, assign) +(P##axis * P##axis)
#define DISTANCE_OF(key, axes, place, weight_blade, eps, learned)              \
    const int first = place;                                                   \
    const real m = key ? 1 : FEATURE_WEIGHT(w, learned);                       \
    real v = CHANNEL(x, weight_blade), u = v / (v * v + (real)eps), W = v * u; \
    axes(POINT) real PP = 0 axes(SQUARE);
#define CROSS_NUMBER(axis, blade, sign, assign) NUMBER(out, first + 2 + axis) = cross * (W * P##axis);
#define DISTANCE_ROW(key, axes, place, weight_blade, eps, learned, assign) \
    EACH {                                                                 \
        DISTANCE_OF(key, axes, place, weight_blade, eps, learned)          \
        NUMBER(out, first) = key ? -W * W : m * PP;                        \
        NUMBER(out, first + 1) = key ? -PP : m * (W * W);                  \
        const real cross = key ? 2 : m;                                    \
        axes(CROSS_NUMBER)                                                 \
    }
#define G(j) (m * NUMBER(grad, first + j))
#define CROSS(axis, blade, sign, assign) +(P##axis * G(2 + axis))
#define SLOPE(axis, blade, sign, assign)                                                                      \
    real d##axis = is_key ? -2 * P##axis * G(1) + 2 * W * G(2 + axis) : 2 * P##axis * G(0) + W * G(2 + axis); \
    du += p##axis * d##axis;
#define GRAD_POINT(axis, blade, sign, assign) CHANNEL(grad_x, blade) assign sign * u * d##axis;
#define GRAD_WEIGHT(axis, blade, sign, assign) +NUMBER(grad, first + 2 + axis) * (W * P##axis)
#define BEND(eps) (((real)eps - v * v) / ((v * v + (real)eps) * (v * v + (real)eps))) /* du / dv */
#define DISTANCE_GRAD(key, axes, place, weight_blade, eps, learned, assign)                             \
    EACH {                                                                                              \
        enum { is_key = key };                                                                          \
        DISTANCE_OF(key, axes, place, weight_blade, eps, learned)                                       \
        real dW = is_key ? -2 * W * G(0) + 2 * (0 axes(CROSS)) : 2 * W * G(1) axes(CROSS), du = v * dW; \
        axes(SLOPE) CHANNEL(grad_x, weight_blade) assign(u * dW + BEND(eps) * du);                      \
        axes(GRAD_POINT) if (!is_key) FEATURE_WEIGHT(grad_w, learned) +=                                \
            NUMBER(grad, first) * PP + NUMBER(grad, first + 1) * (W * W) axes(GRAD_WEIGHT);             \
    }
#define DISTANCE_QUERY(...) DISTANCE_ROW(0, __VA_ARGS__)
#define DISTANCE_KEY(...) DISTANCE_ROW(1, __VA_ARGS__)
#define DISTANCE_QUERY_GRAD(...) DISTANCE_GRAD(0, __VA_ARGS__)
#define DISTANCE_KEY_GRAD(...) DISTANCE_GRAD(1, __VA_ARGS__)

/* Rows of `count` heads of a token from `head` on: x at the first one's channels, blades `stride` apart, rows `ld` apart. */
#define ROW_ARGS                                                                                                        \
    const real *restrict x, const real *restrict w, real *restrict out, long stride, long heads, long head, long count, \
        long ld
#define GRAD_ARGS                                                                                     \
    const real *restrict x, const real *restrict w, const real *restrict grad, real *restrict grad_x, \
        real *restrict grad_w, long stride, long heads, long head, long count, long ld
static void query_row(ROW_ARGS) { BLADES_ROW(query_blades) DISTANCES(DISTANCE_QUERY) }
static void key_row(ROW_ARGS) { BLADES_ROW(key_blades) DISTANCES(DISTANCE_KEY) }
static void value_row(ROW_ARGS) { BLADES_ROW(value_blades) }
static void query_row_backward(GRAD_ARGS) { ZERO(unread) BLADES_GRAD(query_blades) DISTANCES(DISTANCE_QUERY_GRAD) }
static void key_row_backward(GRAD_ARGS) { ZERO(unread) BLADES_GRAD(key_blades) DISTANCES(DISTANCE_KEY_GRAD) }
static void value_row_backward(GRAD_ARGS) { ZERO(value_unread) BLADES_GRAD(value_blades) }

/* Channels of one kind of head: x and s begin at its first channel, tokens are x_apart and s_apart numbers apart. */
typedef struct {
    const real *x, *s;
    real *grad_x, *grad_s;
    long x_apart, s_apart, stride;
} channels;
/* Rows of queries and keys have `compared` numbers, those of values `mixed`; they are key_ld and value_ld apart. */
typedef struct {
    channels query, key, value;
    long heads, key_heads, scalars, compared, mixed, key_ld, value_ld;
    const real *w;
} problem;

static problem problem_of(const attention_args *args, const attention_grads *grads) {
    static const attention_grads none = {0};
    grads = grads ? grads : &none;
    const real *x = args->x, *s = args->s, *keys_x = args->keys_x, *keys_s = args->keys_s;
    real *grad_x = grads->x, *grad_s = grads->s, *grad_keys_x = grads->keys_x, *grad_keys_s = grads->keys_s;
    long heads = args->heads, key_heads = args->key_heads, scalars = args->scalars;
    /* how many heads are in front of the keys' in the same tensor */
    long own = keys_x == 0 && keys_s == 0 ? heads : 0, all = own + 2 * key_heads;
    if (own) keys_x = x, keys_s = s, grad_keys_x = grad_x, grad_keys_s = grad_s;
    long x_apart = (own ? all : heads) * HEAD, s_apart = (own ? all : heads) * scalars;
    problem p = {.heads = heads, .key_heads = key_heads, .scalars = scalars, .w = args->weights};
    p.query = (channels){x, s, grad_x, grad_s, x_apart, s_apart, args->tokens * x_apart};
    p.key = p.value =
        (channels){keys_x, keys_s, grad_keys_x, grad_keys_s, all * HEAD, all * scalars, args->key_tokens * all * HEAD};
    channels *part[] = {&p.key, &p.value};
    for (long i = 0, at = own; i < 2; i++, at += key_heads) {
        part[i]->x += at * HEAD, part[i]->s += at * scalars;
        if (part[i]->grad_x) part[i]->grad_x += at * HEAD;
        if (part[i]->grad_s) part[i]->grad_s += at * scalars;
    }
    p.compared = COMPARED * HEAD + scalars, p.mixed = MIXED * HEAD + scalars;
    p.key_ld = UP(p.compared), p.value_ld = UP(p.mixed);
    return p;
}

/* Row r of a sample whose first token is `at`, for a key head: queries of all `each` heads that share it, token by token. */
#define ROW_TOKEN(r) (at + (r) / each)
#define ROW_HEAD(r) (key_head * each + (r) % each)
#define SAME_TOKEN(r, n) MIN(each - (r) % each, n) /* how many of the n rows from r on are heads of one token */

static inline void copy_short(const real *restrict from, real *restrict to, long n) {
    for (long i = 0; i < n; i += LANES) {
        if (i + LANES <= n) {
            AT(to + i) = AT(from + i);
            continue;
        }
        for (long j = i; j < n; j++) to[j] = from[j];
    }
}
static void scalars_to_rows(const channels *q, long token, long head, long count, long scalars, real *to, long ld) {
    for (long r = 0; r < count; r++) copy_short(q->s + token * q->s_apart + (head + r) * scalars, to + r * ld, scalars);
}
static void scalars_from_rows(const channels *q, long token, long head, long count, long scalars, const real *from,
                              long ld) {
    for (long r = 0; r < count; r++)
        copy_short(from + r * ld, q->grad_s + token * q->s_apart + (head + r) * scalars, scalars);
}
static void query_rows(const problem *p, long at, long key_head, long each, long first, long n, real *to) {
    for (long r = 0, some; r < n; r += some) {
        long token = ROW_TOKEN(first + r), head = ROW_HEAD(first + r), ld = p->key_ld;
        const real *from = p->query.x + token * p->query.x_apart + head * HEAD;
        some = SAME_TOKEN(first + r, n - r);
        query_row(from, p->w, to + r * ld, p->query.stride, p->heads, head, some, ld);
        scalars_to_rows(&p->query, token, head, some, p->scalars, to + r * ld + COMPARED * HEAD, ld);
    }
}
static void key_rows(const problem *p, long at, long head, long n, real *to) {
    for (long r = 0; r < n; r++, to += p->key_ld) {
        key_row(p->key.x + (at + r) * p->key.x_apart + head * HEAD, p->w, to, p->key.stride, p->heads, head, 1, 0);
        scalars_to_rows(&p->key, at + r, head, 1, p->scalars, to + COMPARED * HEAD, 0);
    }
}
static void value_rows(const problem *p, const channels *v, long at, long key_head, long each, long first, long n,
                       real *to) {
    for (long r = 0, some; r < n; r += some) {
        long token = ROW_TOKEN(first + r), head = ROW_HEAD(first + r), ld = p->value_ld;
        some = SAME_TOKEN(first + r, n - r);
        value_row(v->x + token * v->x_apart + head * HEAD, 0, to + r * ld, v->stride, 0, 0, some, ld);
        scalars_to_rows(v, token, head, some, p->scalars, to + r * ld + MIXED * HEAD, ld);
    }
}
/* What is added to the logits of `keys` keys and of the padding up to `all`. */
static void mask_bias(const unsigned char *mask, long keys, real *bias, long all) {
    for (long j = 0; j < keys; j++) bias[j] = mask && !mask[j] ? MASKED : 0;
    for (long j = keys; j < all; j++) bias[j] = MASKED;
}
/* The cache lines that the next task needs, if it begins a short sample: soon[0] with the others behind it. */
static void expect(const channels *const *parts, long count, const long *offsets, long b, long samples, long last,
                   lines *soon) {
    soon[0] = (lines){0};
    if (!last || b + 1 >= samples || offsets[b + 2] - offsets[b + 1] > KEYS) return;
    long t = offsets[b + 1], n = offsets[b + 2] - t;
    for (long i = 0; i < count; i++) {
        const channels *q = parts[i];
        lines *next = soon + 2 * i + 1;
        soon[2 * i] = LINES(q->x + t * q->x_apart, n * q->x_apart, q->stride, BLADES, LINES_AHEAD, next);
        *next = LINES(q->s + t * q->s_apart, n * q->s_apart, 0, 1, LINES_AHEAD, i + 1 < count ? next + 1 : 0);
    }
}
/* The sample that a task or token belongs to, those of sample b being first[b], ..., first[b + 1] - 1. */
static long sample_of(long task, const long *first, long samples) {
    long low = 0, high = samples;
    while (high - low > 1) {
        long middle = (low + high) / 2;
        if (first[middle] <= task) low = middle;
        else high = middle;
    }
    return low;
}
static long longest_sample(const long *offsets, long samples) {
    long most = 0;
    for (long b = 0; b < samples; b++) most = MAX(most, offsets[b + 1] - offsets[b]);
    return most;
}
/* Where the tasks of each sample begin: for each key head, `size` of its rows at a time. */
static long *tasks_of(const long *offsets, long samples, long each, long size, long heads) {
    long *first = malloc((samples + 1) * sizeof(long));
    first[0] = 0;
    for (long b = 0; b < samples; b++)
        first[b + 1] = first[b] + heads * (((offsets[b + 1] - offsets[b]) * each + size - 1) / size);
    return first;
}

/* softmax over the keys of a sample of scale * (query . key), applied to the values. */
EXPORT void attention(const attention_args *args) {
    problem p = problem_of(args, 0);
    const long *query_offsets = args->query_offsets, *key_offsets = args->key_offsets;
    long heads = args->heads, scalars = args->scalars, samples = args->samples, threads = args->threads;
    real scale = args->scale;
    channels out = {
        args->out_x, args->out_s, args->out_x, args->out_s, heads * HEAD, heads * scalars, args->tokens * heads * HEAD};
    long each = heads / args->key_heads, *first = tasks_of(query_offsets, samples, each, CHUNK, args->key_heads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        long most_keys = MIN(KEYS, longest_sample(key_offsets, samples)), row = UP(most_keys) + LANES;
        long most_rows = MIN(CHUNK, longest_sample(query_offsets, samples) * each), key_ld = p.key_ld, value_ld = p.value_ld;
        real *keys = zeros(most_keys * key_ld), *keys_t = buffer(p.compared * row), *values = zeros(most_keys * value_ld);
        real *queries = zeros(QUERIES * key_ld), *logits = buffer(QUERIES * row), *mixed = buffer(most_rows * value_ld);
        real *bias = buffer(row), *top = buffer(most_rows), *sum = buffer(most_rows);
#pragma omp for schedule(dynamic, first[samples] / (8 * threads) + 1)
        for (long task = 0; task < first[samples]; task++) {
            long b = sample_of(task, first, samples), at = query_offsets[b], rows = (query_offsets[b + 1] - at) * each;
            long chunks = (rows + CHUNK - 1) / CHUNK, key_head = (task - first[b]) / chunks;
            long start = (task - first[b]) % chunks * CHUNK, end = MIN(start + CHUNK, rows);
            long key_at = key_offsets[b], key_count = key_offsets[b + 1] - key_at;
            lines soon[4];
            expect((const channels *[]){&p.query, &out}, 2, query_offsets, b, samples, task + 1 == first[b + 1], soon);
            for (long j = 0; j < key_count; j += KEYS) {
                long m = MIN(KEYS, key_count - j), m_up = UP(m), ld = m_up + LANES;
                key_rows(&p, key_at + j, key_head, m, keys);
                transpose(keys, key_ld, m, p.compared, keys_t, ld);
                value_rows(&p, &p.value, key_at + j, key_head, 1, 0, m, values);
                mask_bias(args->mask ? args->mask + key_at + j : 0, m, bias, m_up);
                for (long i = start; i < end; i += QUERIES) {
                    long n = MIN(QUERIES, end - i);
                    real *to = mixed + (i - start) * value_ld;
                    query_rows(&p, at, key_head, each, i, n, queries);
                    multiply(n, m_up, p.compared, queries, key_ld, 1, keys_t, ld, logits, ld, 0, 0, soon);
                    for (long r = 0; r < n; r++) {
                        real *logit = logits + r * ld, before = j ? top[i - start + r] : MASKED;
                        vec most = (vec){0} + before, all = {0};
                        for (long c = 0; c < m_up; c += LANES) {
                            AT(logit + c) = AT(logit + c) * scale + AT(bias + c);
                            most = max_vec(AT(logit + c), most);
                        }
                        most = max_lanes(most);
                        for (long c = 0; c < m_up; c += LANES) all += AT(logit + c) = exp_vec(AT(logit + c) - most);
                        all = sum_lanes(all);
                        top[i - start + r] = most[0];
                        if (key_count <= KEYS) { /* no more to come: fewer weights than mixed numbers */
                            sum[i - start + r] = all[0];
                            all = 1 / all;
                            for (long c = 0; c < m_up; c += LANES) AT(logit + c) *= all;
                            continue;
                        }
                        real less = j ? exp(before - most[0]) : 0;
                        sum[i - start + r] = (j ? less * sum[i - start + r] : 0) + all[0];
                        if (j)
                            for (long c = 0; c < p.mixed; c++) to[r * value_ld + c] *= less;
                    }
                    multiply(n, value_ld, m, logits, ld, 1, values, value_ld, to, value_ld, j ? to : 0, value_ld, soon);
                }
            }
            if (key_count > KEYS)
                for (long r = 0; r < end - start; r++)
                    for (long c = 0; c < p.mixed; c++) mixed[r * value_ld + c] /= sum[r];
            if (!key_count) clear(mixed, (end - start) * value_ld);
            for (long r = start, some; r < end; r += some) {
                long token = ROW_TOKEN(r), head = ROW_HEAD(r);
                real *from = mixed + (r - start) * value_ld;
                some = SAME_TOKEN(r, end - r);
                value_row_backward(0, 0, from, out.grad_x + token * out.x_apart + head * HEAD, 0, out.stride, 0, 0, some,
                                   value_ld);
                scalars_from_rows(&out, token, head, some, scalars, from + MIXED * HEAD, value_ld);
                for (long l = 0; l < some; l++)
                    args->log_sum[token * heads + head + l] = key_count ? top[r - start + l] + LOG(sum[r - start + l]) : 0;
            }
        }
        real *all[] = {keys, keys_t, values, queries, logits, mixed, bias, top, sum};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    }
    free(first);
}

/* The gradients of the streams and of the feature weights; args are those of the forward with its results, and every sample
   has keys. */
EXPORT void attention_backward(const attention_args *args, const attention_grads *grads) {
    problem p = problem_of(args, grads);
    const long *query_offsets = args->query_offsets, *key_offsets = args->key_offsets;
    long heads = args->heads, scalars = args->scalars, samples = args->samples, threads = args->threads;
    long tokens = args->tokens, row_numbers = heads * p.compared; /* of a token */
    real scale = args->scale;
    channels grad_out = {grads->out_x, grads->out_s, 0, 0, heads * HEAD, heads * scalars, tokens * heads * HEAD};
    channels grad_query = p.query;
    grad_query.x = grads->x, grad_query.s = grads->s;
    long each = heads / args->key_heads, *first = tasks_of(key_offsets, samples, 1, KEYS, args->key_heads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        long most_keys = MIN(KEYS, longest_sample(key_offsets, samples)), row = UP(most_keys) + LANES;
        long key_ld = p.key_ld, value_ld = p.value_ld, thread = omp_get_thread_num();
        real *grad_w = grads->weights + thread * LEARNED * heads * HEAD;
        real *row_sums = grads->row_sums ? grads->row_sums + thread * tokens * row_numbers : 0;
        if (grads->row_sums) {
#pragma omp for schedule(static)
            for (long t = 0; t < tokens; t++)
                for (long h = 0; h < heads; h++) {
                    real dot = 0;
                    for (long b = 0; b < BLADES; b++)
                        for (long i = 0; i < HEAD; i++) {
                            long place = b * grad_out.stride + t * grad_out.x_apart + h * HEAD + i;
                            dot += grads->out_x[place] * args->out_x[place];
                        }
                    for (long i = (t * heads + h) * scalars; i < (t * heads + h + 1) * scalars; i++)
                        dot += grads->out_s[i] * args->out_s[i];
                    grads->dots[t * heads + h] = dot;
                }
        }
        real *keys = zeros(most_keys * key_ld), *keys_t = buffer(p.compared * row);
        real *values = zeros(most_keys * value_ld), *values_t = buffer(p.mixed * row);
        real *queries = zeros(QUERIES * key_ld), *grad_mixed = zeros(QUERIES * value_ld), *bias = buffer(row);
        real *weights = buffer(QUERIES * row), *grad_logits = buffer(QUERIES * row),
             *grad_queries = buffer(QUERIES * key_ld);
        real *grad_keys = buffer(most_keys * key_ld), *grad_values = buffer(most_keys * value_ld);
#pragma omp for schedule(dynamic, first[samples] / (8 * threads) + 1)
        for (long task = 0; task < first[samples]; task++) {
            long b = sample_of(task, first, samples), at = query_offsets[b], rows = (query_offsets[b + 1] - at) * each;
            lines soon[6];
            expect((const channels *[]){&p.query, &grad_out, &grad_query}, 3, query_offsets, b, samples,
                   task + 1 == first[b + 1], soon);
            long key_count = key_offsets[b + 1] - key_offsets[b], blocks = (key_count + KEYS - 1) / KEYS;
            long key_head = (task - first[b]) / blocks, j = (task - first[b]) % blocks * KEYS, key_at = key_offsets[b] + j;
            long m = MIN(KEYS, key_count - j), m_up = UP(m), ld = m_up + LANES;
            key_rows(&p, key_at, key_head, m, keys);
            transpose(keys, key_ld, m, p.compared, keys_t, ld);
            value_rows(&p, &p.value, key_at, key_head, 1, 0, m, values);
            transpose(values, value_ld, m, p.mixed, values_t, ld);
            mask_bias(args->mask ? args->mask + key_at : 0, m, bias, m_up);
            clear(grad_keys, m * key_ld);
            clear(grad_values, m * value_ld);
            for (long i = 0; i < rows; i += QUERIES) {
                long n = MIN(QUERIES, rows - i);
                query_rows(&p, at, key_head, each, i, n, queries);
                value_rows(&p, &grad_out, at, key_head, each, i, n, grad_mixed);
                multiply(n, m_up, p.compared, queries, key_ld, 1, keys_t, ld, weights, ld, 0, 0, soon);
                multiply(n, m_up, p.mixed, grad_mixed, value_ld, 1, values_t, ld, grad_logits, ld, 0, 0, soon);
                for (long r = 0; r < n; r++) {
                    long place = ROW_TOKEN(i + r) * heads + ROW_HEAD(i + r);
                    vec dot = {0}, all = {0};
                    for (long c = r * ld; c < r * ld + m_up; c += LANES) {
                        AT(weights + c) = exp_vec(AT(weights + c) * scale + AT(bias + c - r * ld) - args->log_sum[place]);
                        all += AT(weights + c);
                        dot += AT(grad_logits + c) *= AT(weights + c);
                    }
                    /* a large logarithm is rounded, so that weights sum to nearly 1: without them no mean cancels */
                    dot = blocks > 1 ? (vec){0} + grads->dots[place] : sum_lanes(dot) / sum_lanes(all);
                    for (long c = r * ld; c < r * ld + m_up; c += LANES)
                        AT(grad_logits + c) = (AT(grad_logits + c) - AT(weights + c) * dot) * scale;
                }
                multiply(n, key_ld, m, grad_logits, ld, 1, keys, key_ld, grad_queries, key_ld, 0, 0, soon);
                for (long r = 0, some; r < n; r += some) {
                    long token = ROW_TOKEN(i + r), head = ROW_HEAD(i + r), place = token * p.query.x_apart + head * HEAD;
                    some = SAME_TOKEN(i + r, n - r);
                    real *from = grad_queries + r * key_ld;
                    if (blocks > 1) {
                        real *to = row_sums + (token * heads + head) * p.compared;
                        for (long l = 0; l < some; l++)
                            for (long c = 0; c < p.compared; c++) to[l * p.compared + c] += from[l * key_ld + c];
                        continue;
                    }
                    query_row_backward(args->x + place, p.w, from, grads->x + place, grad_w, p.query.stride, heads, head,
                                       some, key_ld);
                    scalars_from_rows(&p.query, token, head, some, scalars, from + COMPARED * HEAD, key_ld);
                }
                multiply(m, value_ld, n, weights, 1, ld, grad_mixed, value_ld, grad_values, value_ld, grad_values, value_ld,
                         soon);
                multiply(m, key_ld, n, grad_logits, 1, ld, queries, key_ld, grad_keys, key_ld, grad_keys, key_ld, soon);
            }
            for (long r = 0; r < m; r++) {
                long token = key_at + r, place = token * p.key.x_apart + key_head * HEAD;
                real *grad_key = grad_keys + r * key_ld, *grad_value = grad_values + r * value_ld;
                key_row_backward(p.key.x + place, p.w, grad_key, p.key.grad_x + place, 0, p.key.stride, heads, key_head, 1,
                                 0);
                scalars_from_rows(&p.key, token, key_head, 1, scalars, grad_key + COMPARED * HEAD, 0);
                value_row_backward(0, 0, grad_value, p.value.grad_x + place, 0, p.value.stride, 0, 0, 1, 0);
                scalars_from_rows(&p.value, token, key_head, 1, scalars, grad_value + MIXED * HEAD, 0);
            }
        }
        if (grads->row_sums) {
#pragma omp for schedule(static)
            for (long t = 0; t < tokens; t++) {
                long b = sample_of(t, query_offsets, samples), place = t * p.query.x_apart;
                if (key_offsets[b + 1] - key_offsets[b] <= KEYS) continue;
                real *sum = grads->row_sums + t * row_numbers;
                for (long k = 1; k < threads; k++)
                    for (long c = 0; c < row_numbers; c++) sum[c] += sum[k * tokens * row_numbers + c];
                query_row_backward(args->x + place, p.w, sum, grads->x + place, grad_w, p.query.stride, heads, 0, heads,
                                   p.compared);
                scalars_from_rows(&p.query, t, 0, heads, scalars, sum + COMPARED * HEAD, p.compared);
            }
        }
        real *all[] = {keys,    keys_t, values,      values_t,     queries,   grad_mixed,
                       weights, bias,   grad_logits, grad_queries, grad_keys, grad_values};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    }
    free(first);
}
