"""C for products of small matrices held in registers: the core of the kernels that multiply."""

VECTORS = 3  # columns of a tile, in vectors: with eight rows they fill most registers of the widest machines
ROWS = (8, 4, 2, 1)  # machines with fewer registers begin with the second


def matrix_product(real: str) -> str:
    """C of `product(m, n, k, a, ra, ca, b, ldb, c, ldc, start, lds)`: c = start + a b.

    a is m by k with any strides; rows of b are ldb numbers apart and padded to whole vectors; start may be c itself, a row
    (lds = 0) or absent.
    """
    return f"""
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
typedef {real} real;
#ifdef __AVX512F__
#define BYTES 64
#define WHICH 0
#else
#define BYTES 32
#define WHICH 1
#endif
#define ROWS ({ROWS[0]} >> WHICH)
#define VECTORS {VECTORS}
#define LANES (BYTES / (long)sizeof(real))
#define UP(n) (((n) + LANES - 1) / LANES * LANES)
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
typedef real vec __attribute__((vector_size(BYTES), aligned(sizeof(real))));
#define AT(p) (*(vec *)(p))
typedef void tile(long, const real *, long, long, const real *, long, real *, long, const real *, long);
{"".join(_tile(rows, vectors) for rows in ROWS for vectors in range(1, VECTORS + 1))}
static tile *const tiles[][VECTORS] = {{
{",".join("{" + ", ".join(f"tile_{rows}_{vectors}" for vectors in range(1, VECTORS + 1)) + "}" for rows in ROWS)}
}};
__attribute__((noinline))
static void product(long m, long n, long k, const real *a, long ra, long ca, const real *b, long ldb,
                    real *c, long ldc, const real *start, long lds) {{
    real edge[ROWS * VECTORS * LANES];
    for (long j = 0; j < n; j += VECTORS * LANES) {{
        long columns = LEAST(n - j, VECTORS * LANES), vectors = (columns + LANES - 1) / LANES, ragged = columns % LANES;
        for (long i = 0; i < m;) {{
            long which = WHICH, rows = ROWS;
            while (rows > m - i) {{ rows /= 2; which++; }}
            real *to = c + i * ldc + j;
            const real *from = start ? start + i * lds + j : 0;
            if (!ragged) tiles[which][vectors - 1](k, a + i * ra, ra, ca, b + j, ldb, to, ldc, from, lds);
            else {{
                long ld = VECTORS * LANES;
                for (long r = 0; r < rows; r++)
                    for (long l = 0; l < ld; l++) edge[r * ld + l] = from && l < columns ? from[r * lds + l] : 0;
                tiles[which][vectors - 1](k, a + i * ra, ra, ca, b + j, ldb, edge, ld, edge, ld);
                for (long r = 0; r < rows; r++) memcpy(to + r * ldc, edge + r * ld, columns * sizeof(real));
            }}
            i += rows;
        }}
    }}
}}
static void padded(const real *from, long rows, long width, real *to, long ld) {{
    for (long r = 0; r < rows; r++) {{
        memcpy(to + r * ld, from + r * width, width * sizeof(real));
        memset(to + r * ld + width, 0, (ld - width) * sizeof(real));
    }}
}}
static void transposed(const real *from, long stride, long rows, long width, real *to, long ld) {{
    for (long i = 0; i < rows; i += LANES) for (long j = 0; j < width; j++)
        for (long l = i; l < LEAST(i + LANES, ld); l++) to[j * ld + l] = l < rows ? from[l * stride + j] : 0;
}}
static void add_rows(const real *x, long rows, long width, real *sum) {{
    for (long r = 0; r < rows; r++) for (long i = 0; i < width; i++) sum[i] += x[r * width + i];
}}
static real *buffer(long numbers) {{ return aligned_alloc(64, (numbers * sizeof(real) + 64) / 64 * 64); }}
"""


def _tile(rows: int, vectors: int) -> str:
    """C of the product of `rows` rows and so many vectors of columns, all sums in registers."""
    places = [(i, j) for i in range(rows) for j in range(vectors)]
    return f"""
static void tile_{rows}_{vectors}(long n, const real *a, long ra, long ca, const real *b, long ldb, real *c, long ldc,
                   const real *start, long lds) {{
    vec {", ".join(f"c{i}_{j} = {{0}}" for i, j in places)};
    if (start) {{ {" ".join(f"c{i}_{j} = AT(start + {i} * lds + {j} * LANES);" for i, j in places)} }}
    for (long k = 0; k < n; k++, a += ca, b += ldb) {{
        vec {", ".join(f"b{j} = AT(b + {j} * LANES)" for j in range(vectors))};
        {" ".join(f"c{i}_{j} += a[{i} * ra] * b{j};" for i, j in places)}
    }}
    {" ".join(f"AT(c + {i} * ldc + {j} * LANES) = c{i}_{j};" for i, j in places)}
}}
"""
