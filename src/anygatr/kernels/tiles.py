"""C for products of small matrices held in registers: the core of the kernels that multiply."""

VECTORS = 3  # columns of a tile, in vectors: with eight rows they fill most registers of the widest machines
ROWS = (8, 4, 2, 1)  # machines with fewer registers begin with the second
WIDTHS = (64, 32)  # bytes of a vector where the compiler has AVX-512, and elsewhere


def matrix_product(real: str) -> str:
    """C of `multiply(m, n, k, a, ra, ca, b, ldb, c, ldc, start, lds, past, soon)`: c = start + a b.

    a is m by k with any strides; rows of b are ldb numbers apart and padded to half vectors, as HALVES(n) counts; start may
    be c itself, a row (lds = 0) or absent. c is written `past` the caches on demand, and lines that are needed `soon` are
    brought into them meanwhile.
    """
    return f"""
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
typedef {real} real;
#ifdef __AVX512F__
#define BYTES {WIDTHS[0]}
#define WHICH 0
#else
#define BYTES {WIDTHS[1]}
#define WHICH 1
#endif
#define ROWS ({ROWS[0]} >> WHICH)
#define VECTORS {VECTORS}
#define LANES (BYTES / (long)sizeof(real))
#define UP(n) (((n) + LANES - 1) / LANES * LANES)
#define HALF (LANES / 2)
#define HALVES(n) (((n) + HALF - 1) / HALF * HALF)
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
typedef real vec __attribute__((vector_size(BYTES), aligned(sizeof(real))));
#define AT(p) (*(vec *)(p))
typedef real half __attribute__((vector_size(BYTES / 2), aligned(sizeof(real))));
/* a line written past the caches need not be read first: three times as fast where it is not in them */
#if defined(__clang__)
typedef real line __attribute__((vector_size(BYTES)));
#define PAST(p, v) __builtin_nontemporal_store((line)(v), (line *)(p))
#elif defined(__AVX512F__)
#define PAST(p, v) __builtin_ia32_movntps512((float *)(p), (float __attribute__((vector_size(64))))(v))
#elif defined(__AVX__)
#define PAST(p, v) __builtin_ia32_movntps256((float *)(p), (float __attribute__((vector_size(32))))(v))
#else
#define PAST(p, v) AT(p) = (v)
#endif
#if defined(__SSE__)
#define SETTLE __builtin_ia32_sfence()
#else
#define SETTLE
#endif
#define LINE 64
#define WHOLE(p, numbers) (((unsigned long)(p) | (numbers) * sizeof(real)) % LINE == 0)
typedef void tile(long, const real *, long, long, const real *, long, real *, long, const real *, long, long);
{"".join(_tile("half", 1, rows) + "".join(_tile("vec", v, rows) for v in range(1, VECTORS + 1)) for rows in ROWS)}
static tile *const tiles[][VECTORS + 1] = {{
{", ".join("{" + ", ".join([f"half_1_{r}", *(f"vec_{v}_{r}" for v in range(1, VECTORS + 1))]) + "}" for r in ROWS)}
}};
/* `count` stretches of `size` bytes, `apart` from each other, the first one fetched up to `done`, `some` lines at a time */
typedef struct lines {{ const char *at; long size, apart, count, done, some; struct lines *then; }} lines;
#define LINES(p, numbers, far, count, some, then) \\
    ((lines){{(const char *)(p), (numbers) * (long)sizeof(real), (far) * (long)sizeof(real), count, 0, some, then}})
static inline void fetch(lines *soon) {{
    for (long some = soon->some; some > 0;) {{
        if (soon->count <= 0 || soon->size <= 0) {{
            if (!soon->then) return;
            *soon = *soon->then;
            continue;
        }}
        __builtin_prefetch(soon->at + soon->done, 0, 2);
        soon->done += LINE, some--;
        if (soon->done >= soon->size) soon->at += soon->apart, soon->count--, soon->done = 0;
    }}
}}
__attribute__((noinline))
static void multiply(long m, long n, long k, const real *a, long ra, long ca, const real *b, long ldb,
                     real *c, long ldc, const real *start, long lds, long past, lines *soon) {{
    real edge[ROWS * HALF];
    for (long j = 0, columns; j < n; j += columns) {{
        /* even shares: a panel of one vector spends more on loads than on sums */
        long left = (n - j) / LANES, panels = (left + VECTORS - 1) / VECTORS;
        long vectors = left ? (left + panels - 1) / panels : 0;
        columns = vectors ? vectors * LANES : LEAST(n - j, HALF);
        long whole = past && vectors && WHOLE(c + j, ldc) && WHOLE(0, columns);
        for (long i = 0, which = WHICH, rows = ROWS; i < m; i += rows) {{
            while (rows > m - i) {{ rows /= 2; which++; }}
            real *to = c + i * ldc + j;
            const real *from = start ? start + i * lds + j : 0;
            tile *call = tiles[which][vectors];
            fetch(soon);
            if (columns >= HALF) {{ call(k, a + i * ra, ra, ca, b + j, ldb, to, ldc, from, lds, whole); continue; }}
            if (from) for (long r = 0; r < rows; r++) memcpy(edge + r * HALF, from + r * lds, columns * sizeof(real));
            call(k, a + i * ra, ra, ca, b + j, ldb, edge, HALF, from ? edge : 0, HALF, 0);
            for (long r = 0; r < rows; r++) memcpy(to + r * ldc, edge + r * HALF, columns * sizeof(real));
        }}
    }}
}}
static void copy_past(const real *from, real *to, long n) {{
    if (!WHOLE(to, n)) {{ memcpy(to, from, n * sizeof(real)); return; }}
    for (long i = 0; i < n; i += LANES) PAST(to + i, AT(from + i));
}}
static void padded(const real *from, long rows, long width, real *to, long ld) {{
    for (long r = 0; r < rows; r++) {{
        memcpy(to + r * ld, from + r * width, width * sizeof(real));
        memset(to + r * ld + width, 0, (ld - width) * sizeof(real));
    }}
}}
static const real *fitting(const real *from, long rows, long width, real *to, long ld) {{
    if (width == ld) return from;
    padded(from, rows, width, to, ld);
    return to;
}}
{_turn(real)}
static void transposed(const real *from, long stride, long rows, long width, real *to, long ld) {{
    for (long i = 0; i < rows; i += LANES) {{
        long whole = i + LANES <= rows ? width / LANES * LANES : 0;
        for (long j = 0; j < whole; j += LANES) turn(from + i * stride + j, stride, to + j * ld + i, ld);
        for (long j = whole; j < width; j++)
            for (long l = i; l < LEAST(i + LANES, ld); l++) to[j * ld + l] = l < rows ? from[l * stride + j] : 0;
    }}
}}
static void add_rows(const real *x, long rows, long width, real *sum) {{
    for (long r = 0; r < rows; r++) for (long i = 0; i < width; i++) sum[i] += x[r * width + i];
}}
static real *buffer(long numbers) {{ return aligned_alloc(64, (numbers * sizeof(real) + 64) / 64 * 64); }}
"""


def _tile(kind: str, vectors: int, rows: int) -> str:
    """C of the product of `rows` rows and so many vectors of columns, all sums in registers."""
    places = [(i, j) for i in range(rows) for j in range(vectors)]
    return f"""
static void {kind}_{vectors}_{rows}(long n, const real *a, long ra, long ca, const real *b, long ldb, real *c, long ldc,
                   const real *start, long lds, long past) {{
    {kind} {", ".join(f"c{i}_{j} = {{0}}" for i, j in places)};
    if (start) {{ {" ".join(f"c{i}_{j} = *({kind} *)(start + {i} * lds + {j} * LANES);" for i, j in places)} }}
    for (long k = 0; k < n; k++, a += ca, b += ldb) {{
        {kind} {", ".join(f"b{j} = *({kind} *)(b + {j} * LANES)" for j in range(vectors))};
        {" ".join(f"c{i}_{j} += a[{i} * ra] * b{j};" for i, j in places)}
    }}
    {_past(places) if kind == "vec" else ""}
    {" ".join(f"*({kind} *)(c + {i} * ldc + {j} * LANES) = c{i}_{j};" for i, j in places)}
}}
"""


def lanes_of(real: str, width: int) -> int:
    """How many numbers a vector of so many bytes has."""
    return width // {"float": 4, "double": 8}[real]


def _turn(real: str) -> str:
    """C of the transpose of a square block, as wide as a vector, in registers."""
    integer = {"float": "int", "double": "long long"}[real]
    wide, narrow = (_exchanges(lanes_of(real, width)) for width in WIDTHS)
    return f"""#if defined(__clang__) || __GNUC__ >= 12
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef {integer} places __attribute__((vector_size(BYTES)));
#define PICK(a, b, ...) __builtin_shuffle(a, b, (places){{__VA_ARGS__}})
#endif
static void turn(const real *from, long stride, real *to, long ld) {{
#ifdef __AVX512F__
{wide}
#else
{narrow}
#endif
}}"""


def _exchanges(lanes: int) -> str:
    """Blocks off the diagonal change places: of half the size first, then of a quarter, down to single numbers."""
    rows = range(lanes)
    body = "".join(f"vec r{i} = AT(from + {i} * stride);\n" for i in rows)
    apart = lanes // 2
    while apart:
        upper = [lane if not lane & apart else lanes + lane - apart for lane in rows]
        lower = [lane + apart if not lane & apart else lanes + lane for lane in rows]
        for i in (row for row in rows if not row & apart):
            a, b = f"r{i}", f"r{i + apart}"
            body += (
                f"{{ vec a = {a}, b = {b}; {a} = PICK(a, b, {str(upper)[1:-1]}); {b} = PICK(a, b, {str(lower)[1:-1]}); }}\n"
            )
        apart //= 2
    return body + "\n".join(f"AT(to + {i} * ld) = r{i};" for i in rows)


def _past(places: list[tuple[int, int]]) -> str:
    return f"if (past) {{ {' '.join(f'PAST(c + {i} * ldc + {j} * LANES, c{i}_{j});' for i, j in places)} return; }}"
