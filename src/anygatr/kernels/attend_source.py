"""C of attention from channels to channels: rows, logits, weights and mixtures of a block of keys never leave the cache."""

from functools import lru_cache

from anygatr.kernels.across import across
from anygatr.kernels.exponential import exponential
from anygatr.kernels.row_source import row_source
from anygatr.kernels.tiles import matrix_product
from anygatr.spaces.features import Feature, Inner

KEYS = 512  # of a block: with their rows and the logits of some queries they fit the second cache
QUERIES = 64
CHUNK = 2048  # rows of queries that a thread takes at a time
LINES = 32  # of the next sample that are fetched before each product of a few rows


@lru_cache(maxsize=64)
def attend_source(features: tuple[Feature, ...], blades: int, mixed: tuple[int, ...], width: int, real: str) -> str:
    """C of `attend` and `attend_backward` for heads of `width` multivector channels."""
    values = (Inner(mixed, (1.0,) * len(mixed)),)
    roles = (("query", features, False), ("key", features, True), ("value", values, True))
    rows = "".join(row_source(name, parts, key, blades, real) for name, parts, key in roles)
    sizes = f"#define C {width}\n#define BLADES {blades}\n#define MIXED {len(mixed)}\n"
    sizes += f"#define SIZE {sum(f.size for f in features)}\n"
    blocks = f"#define KEYS {KEYS}\n#define QUERIES {QUERIES}\n#define CHUNK {CHUNK}\n#define SOME {LINES}\n"
    return matrix_product(real) + sizes + blocks + rows + exponential(real) + across(real) + COMMON + FORWARD + BACKWARD


COMMON = """
#define FAR ((real)-1e30)
#define LOG(x) (sizeof(real) == sizeof(float) ? logf(x) : log(x))
/* channels of one kind of head: x and s begin at its first channel, tokens are X and S numbers apart, blades K */
typedef struct { const real *x, *s; real *gx, *gs; long X, S, K; } part;
typedef struct { part query, key, value; long heads, key_heads, scalars, F, W, Fp, Wp; const real *w; } problem;

static problem of(const real *x, const real *s, const real *kx, const real *ks, const real *w, real *gx, real *gs,
                  real *gkx, real *gks, long n, long m, long heads, long key_heads, long scalars) {
    long own = kx == 0 && ks == 0 ? heads : 0, all = own ? heads + 2 * key_heads : 2 * key_heads;
    if (own) { kx = x; ks = s; gkx = gx; gks = gs; }
    long X = (own ? all : heads) * C, S = (own ? all : heads) * scalars, KX = all * C, KS = all * scalars;
    problem p = {.heads = heads, .key_heads = key_heads, .scalars = scalars, .w = w};
    p.query = (part){x, s, gx, gs, X, S, n * X};
    p.key = (part){kx + own * C, ks + own * scalars, gkx + own * C, gks + own * scalars, KX, KS, m * KX};
    long at = own + key_heads;
    p.value = (part){kx + at * C, ks + at * scalars, gkx + at * C, gks + at * scalars, KX, KS, m * KX};
    p.F = SIZE * C + scalars, p.W = MIXED * C + scalars, p.Fp = UP(p.F), p.Wp = UP(p.W);
    return p;
}
/* row r of a sample whose first token is `at`, for key head g: queries of all heads that share it, token by token */
#define TOKEN(r) (at + (r) / each)
#define HEAD(r) (g * each + (r) % each)
/* the rows from r on that are heads of one token, n of them at most */
#define TOGETHER(r, n) LEAST(each - (r) % each, n)
static inline void copied(const real *restrict from, real *restrict to, long n) {
    for (long i = 0; i < n; i += LANES) {
        if (i + LANES <= n) { AT(to + i) = AT(from + i); continue; }
        for (long j = i; j < n; j++) to[j] = from[j];
    }
}
static void scalars_to(const part *q, long token, long head, long count, long scalars, real *to, long ld) {
    for (long r = 0; r < count; r++) copied(q->s + token * q->S + (head + r) * scalars, to + r * ld, scalars);
}
static void scalars_from(const part *q, long token, long head, long count, long scalars, const real *from, long ld) {
    for (long r = 0; r < count; r++) copied(from + r * ld, q->gs + token * q->S + (head + r) * scalars, scalars);
}
static void query_rows(const problem *p, long at, long g, long each, long first, long n, real *to) {
    for (long r = 0, some; r < n; r += some) {
        long token = TOKEN(first + r), head = HEAD(first + r), ld = p->Fp;
        const real *from = p->query.x + token * p->query.X + head * C;
        some = TOGETHER(first + r, n - r);
        query_rows_of(from, p->w, to + r * ld, p->query.K, p->heads, head, some, ld);
        scalars_to(&p->query, token, head, some, p->scalars, to + r * ld + SIZE * C, ld);
    }
}
static void key_rows(const problem *p, long at, long g, long n, real *to) {
    for (long r = 0; r < n; r++, to += p->Fp) {
        key_rows_of(p->key.x + (at + r) * p->key.X + g * C, p->w, to, p->key.K, p->heads, g, 1, 0);
        scalars_to(&p->key, at + r, g, 1, p->scalars, to + SIZE * C, 0);
    }
}
static void value_rows(const part *v, long at, long g, long each, long first, long n, long scalars, real *to, long ld) {
    for (long r = 0, some; r < n; r += some) {
        long token = TOKEN(first + r), head = HEAD(first + r);
        some = TOGETHER(first + r, n - r);
        value_rows_of(v->x + token * v->X + head * C, 0, to + r * ld, v->K, 0, 0, some, ld);
        scalars_to(v, token, head, some, scalars, to + r * ld + MIXED * C, ld);
    }
}
static void bias_of(const unsigned char *mask, long keys, real *bias, long all) {
    for (long j = 0; j < keys; j++) bias[j] = mask && !mask[j] ? FAR : 0;
    for (long j = keys; j < all; j++) bias[j] = FAR;
}
/* the lines that the next task needs, if it begins a short sample: first[0] with the others behind it */
static void expect(const part *const *parts, long count, const long *at, long b, long samples, long last, lines *first) {
    first[0] = (lines){0};
    if (!last || b + 1 >= samples || at[b + 2] - at[b + 1] > KEYS) return;
    long t = at[b + 1], n = at[b + 2] - t;
    for (long i = 0; i < count; i++) {
        const part *q = parts[i];
        lines *then = first + 2 * i + 1;
        first[2 * i] = LINES(q->x + t * q->X, n * q->X, q->K, BLADES, SOME, then);
        *then = LINES(q->s + t * q->S, n * q->S, 0, 1, SOME, i + 1 < count ? then + 1 : 0);
    }
}
static real *zeros(long numbers) { real *out = buffer(numbers); memset(out, 0, numbers * sizeof(real)); return out; }
/* the sample that a task or token belongs to, those of sample b being first[b], ..., first[b + 1] - 1 */
static long sample_of(long task, const long *first, long samples) {
    long low = 0, high = samples;
    while (high - low > 1) { long mid = (low + high) / 2; if (first[mid] <= task) low = mid; else high = mid; }
    return low;
}
static long largest(const long *at, long samples) {
    long most = 0;
    for (long b = 0; b < samples; b++) most = at[b + 1] - at[b] > most ? at[b + 1] - at[b] : most;
    return most;
}
static long *tasks_of(const long *at, long samples, long each, long size, long heads) {
    long *first = malloc((samples + 1) * sizeof(long));
    first[0] = 0;
    for (long b = 0; b < samples; b++) first[b + 1] = first[b] + heads * (((at[b + 1] - at[b]) * each + size - 1) / size);
    return first;
}
"""

FORWARD = """
void attend(const real *x, const real *s, const real *kx, const real *ks, const real *w, const unsigned char *mask,
            const long *q_at, const long *k_at, const double *scale, real *out_x, real *out_s, real *total,
            long tokens, long key_tokens, long samples, long heads, long key_heads, long scalars, long threads) {
    problem p = of(x, s, kx, ks, w, 0, 0, 0, 0, tokens, key_tokens, heads, key_heads, scalars);
    part out = {out_x, out_s, out_x, out_s, heads * C, heads * scalars, tokens * heads * C};
    long each = heads / key_heads, *first = tasks_of(q_at, samples, each, CHUNK, key_heads);
    #pragma omp parallel num_threads(threads) if (threads > 1)
    {
    long most = LEAST(KEYS, largest(k_at, samples)), room = UP(most) + LANES, Fp = p.Fp, Wp = p.Wp;
    long many = LEAST(CHUNK, largest(q_at, samples) * each);
    real *kb = zeros(most * Fp), *kt = buffer(p.F * room), *vb = zeros(most * Wp), *qb = zeros(QUERIES * Fp);
    real *logits = buffer(QUERIES * room), *mixed = buffer(many * Wp), *bias = buffer(room);
    real *top = buffer(many), *sum = buffer(many);
    #pragma omp for schedule(dynamic, first[samples] / (8 * threads) + 1)
    for (long task = 0; task < first[samples]; task++) {
        long b = sample_of(task, first, samples), at = q_at[b], rows = (q_at[b + 1] - at) * each;
        long chunks = (rows + CHUNK - 1) / CHUNK, g = (task - first[b]) / chunks, keys = k_at[b + 1] - k_at[b];
        long start = (task - first[b]) % chunks * CHUNK, end = LEAST(start + CHUNK, rows);
        lines soon[4];
        expect((const part *[]){&p.query, &out}, 2, q_at, b, samples, task + 1 == first[b + 1], soon);
        for (long j = 0; j < keys; j += KEYS) {
            long m = LEAST(KEYS, keys - j), mp = UP(m), ld = mp + LANES;
            key_rows(&p, k_at[b] + j, g, m, kb);
            transposed(kb, Fp, m, p.F, kt, ld);
            value_rows(&p.value, k_at[b] + j, g, 1, 0, m, scalars, vb, Wp);
            bias_of(mask ? mask + k_at[b] + j : 0, m, bias, mp);
            for (long i = start; i < end; i += QUERIES) {
                long n = LEAST(QUERIES, end - i);
                real *o = mixed + (i - start) * Wp;
                query_rows(&p, at, g, each, i, n, qb);
                multiply(n, mp, p.F, qb, Fp, 1, kt, ld, logits, ld, 0, 0, 0, soon);
                for (long r = 0; r < n; r++) {
                    real *row = logits + r * ld, was = j ? top[i - start + r] : FAR;
                    vec most = (vec){0} + was, all = {0};
                    for (long c = 0; c < mp; c += LANES) {
                        AT(row + c) = AT(row + c) * (real)*scale + AT(bias + c);
                        most = larger(AT(row + c), most);
                    }
                    most = most_of(most);
                    for (long c = 0; c < mp; c += LANES) all += AT(row + c) = exponential(AT(row + c) - most);
                    all = sum_of(all);
                    top[i - start + r] = most[0];
                    if (keys <= KEYS) {  /* no more to come: fewer weights than mixed numbers */
                        sum[i - start + r] = all[0];
                        all = 1 / all;
                        for (long c = 0; c < mp; c += LANES) AT(row + c) *= all;
                        continue;
                    }
                    real less = j ? exp(was - most[0]) : 0;
                    sum[i - start + r] = (j ? less * sum[i - start + r] : 0) + all[0];
                    if (j) for (long c = 0; c < p.W; c++) o[r * Wp + c] *= less;
                }
                multiply(n, Wp, m, logits, ld, 1, vb, Wp, o, Wp, j ? o : 0, Wp, 0, soon);
            }
        }
        if (keys > KEYS) for (long r = 0; r < end - start; r++) for (long c = 0; c < p.W; c++) mixed[r * Wp + c] /= sum[r];
        if (!keys) memset(mixed, 0, (end - start) * Wp * sizeof(real));
        for (long r = start, some; r < end; r += some) {
            long token = TOKEN(r), head = HEAD(r);
            real *o = mixed + (r - start) * Wp;
            some = TOGETHER(r, end - r);
            value_rows_backward(0, 0, o, out.gx + token * out.X + head * C, 0, out.K, 0, 0, some, Wp);
            scalars_from(&out, token, head, some, scalars, o + MIXED * C, Wp);
            for (long l = 0; l < some; l++)
                total[token * heads + head + l] = keys ? top[r - start + l] + LOG(sum[r - start + l]) : 0;
        }
    }
    free(kb); free(kt); free(vb); free(qb); free(logits); free(mixed); free(bias); free(top); free(sum);
    }
    free(first);
}
"""

BACKWARD = """
void attend_backward(const real *x, const real *s, const real *kx, const real *ks, const real *w, const unsigned char *mask,
                     const long *q_at, const long *k_at, const double *scale, const real *grad_x, const real *grad_s,
                     const real *out_x, const real *out_s, const real *total, real *gx, real *gs, real *gkx, real *gks,
                     real *gw, real *sums, real *dots,
                     long tokens, long key_tokens, long samples, long heads, long key_heads, long scalars, long threads) {
    problem p = of(x, s, kx, ks, w, gx, gs, gkx, gks, tokens, key_tokens, heads, key_heads, scalars);
    part grad = {grad_x, grad_s, 0, 0, heads * C, heads * scalars, tokens * heads * C}, made = p.query;
    made.x = gx, made.s = gs;
    long each = heads / key_heads, *first = tasks_of(k_at, samples, 1, KEYS, key_heads);
    #pragma omp parallel num_threads(threads) if (threads > 1)
    {
    long most = LEAST(KEYS, largest(k_at, samples)), room = UP(most) + LANES;
    long Fp = p.Fp, Wp = p.Wp, learned = LEARNED_query * heads * C;
    real *own_w = gw + omp_get_thread_num() * learned, *own = sums ? sums + omp_get_thread_num() * tokens * heads * p.F : 0;
    if (sums) {
        #pragma omp for schedule(static)
        for (long t = 0; t < tokens; t++) for (long h = 0; h < heads; h++) {
            real dot = 0;
            for (long b = 0; b < BLADES; b++) for (long i = 0; i < C; i++) {
                long place = b * grad.K + t * grad.X + h * C + i;
                dot += grad_x[place] * out_x[place];
            }
            for (long i = t * grad.S + h * scalars; i < t * grad.S + (h + 1) * scalars; i++) dot += grad_s[i] * out_s[i];
            dots[t * heads + h] = dot;
        }
    }
    real *kb = zeros(most * Fp), *kt = buffer(p.F * room), *vb = zeros(most * Wp), *vt = buffer(p.W * room);
    real *qb = zeros(QUERIES * Fp), *ob = zeros(QUERIES * Wp), *weights = buffer(QUERIES * room);
    real *ds = buffer(QUERIES * room), *gq = buffer(QUERIES * Fp), *gk = buffer(most * Fp), *gv = buffer(most * Wp);
    real *bias = buffer(room);
    #pragma omp for schedule(dynamic, first[samples] / (8 * threads) + 1)
    for (long task = 0; task < first[samples]; task++) {
        long b = sample_of(task, first, samples), at = q_at[b], rows = (q_at[b + 1] - at) * each;
        lines soon[6];
        expect((const part *[]){&p.query, &grad, &made}, 3, q_at, b, samples, task + 1 == first[b + 1], soon);
        long keys = k_at[b + 1] - k_at[b], blocks = (keys + KEYS - 1) / KEYS, g = (task - first[b]) / blocks;
        long j = (task - first[b]) % blocks * KEYS, m = LEAST(KEYS, keys - j), mp = UP(m), ld = mp + LANES;
        key_rows(&p, k_at[b] + j, g, m, kb);
        transposed(kb, Fp, m, p.F, kt, ld);
        value_rows(&p.value, k_at[b] + j, g, 1, 0, m, scalars, vb, Wp);
        transposed(vb, Wp, m, p.W, vt, ld);
        bias_of(mask ? mask + k_at[b] + j : 0, m, bias, mp);
        memset(gk, 0, m * Fp * sizeof(real));
        memset(gv, 0, m * Wp * sizeof(real));
        for (long i = 0; i < rows; i += QUERIES) {
            long n = LEAST(QUERIES, rows - i);
            query_rows(&p, at, g, each, i, n, qb);
            value_rows(&grad, at, g, each, i, n, scalars, ob, Wp);
            multiply(n, mp, p.F, qb, Fp, 1, kt, ld, weights, ld, 0, 0, 0, soon);
            multiply(n, mp, p.W, ob, Wp, 1, vt, ld, ds, ld, 0, 0, 0, soon);
            for (long r = 0; r < n; r++) {
                long place = TOKEN(i + r) * heads + HEAD(i + r);
                vec both = {0};
                for (long c = r * ld; c < r * ld + mp; c += LANES) {
                    AT(weights + c) = exponential(AT(weights + c) * (real)*scale + AT(bias + c - r * ld) - total[place]);
                    both += AT(ds + c) *= AT(weights + c);
                }
                both = blocks > 1 ? (vec){0} + dots[place] : sum_of(both);
                for (long c = r * ld; c < r * ld + mp; c += LANES)
                    AT(ds + c) = (AT(ds + c) - AT(weights + c) * both) * (real)*scale;
            }
            multiply(n, Fp, m, ds, ld, 1, kb, Fp, gq, Fp, 0, 0, 0, soon);
            for (long r = 0, some; r < n; r += some) {
                long token = TOKEN(i + r), head = HEAD(i + r), place = token * p.query.X + head * C;
                some = TOGETHER(i + r, n - r);
                if (blocks > 1) {
                    real *to = own + (token * heads + head) * p.F;
                    for (long l = 0; l < some; l++) for (long c = 0; c < p.F; c++) to[l * p.F + c] += gq[(r + l) * Fp + c];
                    continue;
                }
                query_rows_backward(x + place, w, gq + r * Fp, gx + place, own_w, p.query.K, heads, head, some, Fp);
                scalars_from(&p.query, token, head, some, scalars, gq + r * Fp + SIZE * C, Fp);
            }
            multiply(m, Wp, n, weights, 1, ld, ob, Wp, gv, Wp, gv, Wp, 0, soon);
            multiply(m, Fp, n, ds, 1, ld, qb, Fp, gk, Fp, gk, Fp, 0, soon);
        }
        for (long r = 0; r < m; r++) {
            long token = k_at[b] + j + r, place = token * p.key.X + g * C;
            key_rows_backward(p.key.x + place, w, gk + r * Fp, p.key.gx + place, 0, p.key.K, heads, g, 1, 0);
            scalars_from(&p.key, token, g, 1, scalars, gk + r * Fp + SIZE * C, 0);
            value_rows_backward(0, 0, gv + r * Wp, p.value.gx + place, 0, p.value.K, 0, 0, 1, 0);
            scalars_from(&p.value, token, g, 1, scalars, gv + r * Wp + MIXED * C, 0);
        }
    }
    if (sums) {
        #pragma omp for schedule(static)
        for (long t = 0; t < tokens; t++) {
            long b = sample_of(t, q_at, samples);
            if (k_at[b + 1] - k_at[b] <= KEYS) continue;
            real *row = sums + t * heads * p.F;
            for (long k = 1; k < threads; k++)
                for (long c = 0; c < heads * p.F; c++) row[c] += row[k * tokens * heads * p.F + c];
            query_rows_backward(x + t * p.query.X, w, row, gx + t * p.query.X, own_w, p.query.K, heads, 0, heads, p.F);
            scalars_from(&p.query, t, 0, heads, scalars, row + SIZE * C, p.F);
        }
    }
    free(kb); free(kt); free(vb); free(vt); free(qb); free(ob); free(weights);
    free(ds); free(gq); free(gk); free(gv); free(bias);
    }
    free(first);
}
"""
