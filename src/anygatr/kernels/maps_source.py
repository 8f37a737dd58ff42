"""C of maps and attention one after the other, tile by tile of tokens: what is made between need not leave the cache."""

from functools import lru_cache

from anygatr.kernels.tiles import matrix_product

TOKENS = 64  # of a tile: all its blades stay in the second cache
PAST = 1 << 22  # bytes of a result from which it is written past the caches: they would not keep it
FUNCTIONS = ("linear_room", "linear_scratch", "linear_prepare", "linear_tile")
"""What the source of a map has: how many numbers it needs for its weights and for a tile, and what it does with them."""
PIECES = 2  # in which the weights of a map are prepared
MAP = f"""
#define TOKENS {TOKENS}
#define PAST_BYTES {PAST}
typedef struct {{ const real *mv, *s_to_mv, *mv_to_s, *s_to_s, *bias_mv, *bias_s; }} weights;
/* where a map finds the tokens of a tile and puts its results; blades are so many tokens apart, `next` tokens come soon */
typedef struct {{
    const real *x, *s, *numbers, *onto_x, *onto_s;
    real *y, *t;
    long apart, onto_apart, y_apart, tokens, next, past;
}} place;
"""


@lru_cache(maxsize=2)
def maps_source(real: str) -> str:
    """C of `maps`: the results of one that has nowhere to put them are only for the one behind it.

    Attention prepares nothing; its samples are whole in a tile.
    """
    return matrix_product(real) + MAP + MAPS.replace("PIECES", str(PIECES))


MAPS = """
typedef struct {
    long (*room)(long, long, long, long), (*scratch)(long, long, long, long);
    void (*prepare)(const weights *, long, real *, long, long, long, long);
    union {
        void (*map)(const place *, real *, long, real *, long, long, long, long);
        void (*attend)(const real *, const real *, const real *, const real *, const real *, const unsigned char *,
                       const long *, const long *, const double *, real *, real *, real *,
                       long, long, long, long, long, long, long);
    } run;
    union {
        weights map;
        struct { const real *weights; const long *queries; const double *scale; long length, heads, key_heads; } attend;
    } given;
    const real *numbers;
    real *y, *t;
    long beside, blades, ci, si, co, so;
} map;
#define WIDTHS(i) all[i].ci, all[i].si, all[i].co, all[i].so
#define KEPT(i) (all[i].y || all[i].t)  /* what is empty has no address */
static void mix(const map *it, const place *now, real *total) {
    long heads = it->given.attend.heads, samples = now->tokens / it->given.attend.length;
    const long *at = it->given.attend.queries;
    it->run.attend(now->x, now->s, 0, 0, it->given.attend.weights, 0, at, at, it->given.attend.scale, now->y, now->t, total,
                   now->tokens, now->tokens, samples, heads, it->given.attend.key_heads, it->so / heads, 1);
}
void maps(const map *all, const real *x, const real *s, const real *beside, const real *onto_x, const real *onto_s,
          long count, long cx, long sx, long n, long tokens, long threads) {
    long tile_count = (n + tokens - 1) / tokens, room[count + 1], scratch = 0, between = 0;
    room[0] = 0;
    for (long i = 0; i < count; i++) {
        long maps = all[i].prepare != 0;
        room[i + 1] = room[i] + (maps ? UP(all[i].room(WIDTHS(i))) : 0);
        long needed = maps ? UP(all[i].scratch(WIDTHS(i))) : UP(tokens * all[i].given.attend.heads);
        scratch = needed > scratch ? needed : scratch;
        between += KEPT(i) ? 0 : tokens * (all[i].blades * all[i].co + all[i].so);
    }
    real *w = buffer(room[count]);
    #pragma omp parallel num_threads(threads) if (threads > 1)
    {
        real *own = buffer(scratch + between);
        #pragma omp for schedule(dynamic)
        for (long piece = 0; piece < PIECES * count; piece++) {
            long i = piece / PIECES;
            if (all[i].prepare) all[i].prepare(&all[i].given.map, piece % PIECES, w + room[i], WIDTHS(i));
        }
        #pragma omp for schedule(static)
        for (long tile = 0; tile < tile_count; tile++) {
            long at = tile * tokens, m = LEAST(tokens, n - at);
            place now = {.x = x + at * cx, .s = s + at * sx, .apart = n, .tokens = m, .next = LEAST(tokens, n - at - m)};
            real *spare = own + scratch;
            for (long i = 0; i < count; i++) {
                const map *it = all + i;
                long co = it->co, so = it->so;
                if (it->beside) now.s = beside + at * it->si;
                now.numbers = it->numbers ? it->numbers + at : 0;
                if (KEPT(i)) now.y = it->y + at * co, now.y_apart = n, now.t = it->t + at * so;
                else {
                    now.y = spare, now.y_apart = m, now.t = now.y + it->blades * m * co;
                    spare = now.t + m * so;
                }
                if (i == count - 1) {
                    now.past = it->blades * n * co * (long)sizeof(real) >= PAST_BYTES;
                    now.onto_x = onto_x ? onto_x + at * co : 0, now.onto_s = onto_s ? onto_s + at * so : 0;
                    now.onto_apart = n;
                }
                const weights *given = &it->given.map;
                if (!it->prepare) mix(it, &now, own);
                else it->run.map(&now, w + room[i], given->bias_mv || given->bias_s, own, WIDTHS(i));
                now.x = now.y, now.apart = now.y_apart, now.s = now.t, now.next = 0;
            }
        }
        free(own);
        SETTLE;
    }
    free(w);
}
"""
