/* Products of small matrices: all sums of a tile stay in registers, lines that are needed soon are prefetched meanwhile. */
#pragma once
#include "simd.h"

/* with eight rows of three vectors the sums fill most registers of AVX-512; other machines begin with four rows */
#define VECTORS 3
#ifdef __AVX512F__
#define MOST_ROWS 8
#else
#define MOST_ROWS 4
#endif

/* A tile of R rows and V vectors as R * V scalars c_i_j: compilers keep scalars, not arrays, in registers. */
#define COLUMNS_1(M, T, i) M(T, i, 0)
#define COLUMNS_2(M, T, i) M(T, i, 0) M(T, i, 1)
#define COLUMNS_3(M, T, i) M(T, i, 0) M(T, i, 1) M(T, i, 2)
#define TILE_1(M, T, V) COLUMNS_##V(M, T, 0)
#define TILE_2(M, T, V) \
    TILE_1(M, T, V)     \
    COLUMNS_##V(M, T, 1)
#define TILE_4(M, T, V) \
    TILE_2(M, T, V)     \
    COLUMNS_##V(M, T, 2) COLUMNS_##V(M, T, 3)
#define TILE_8(M, T, V) \
    TILE_4(M, T, V)     \
    COLUMNS_##V(M, T, 4) COLUMNS_##V(M, T, 5) COLUMNS_##V(M, T, 6) COLUMNS_##V(M, T, 7)
#define ZERO_SUM(T, i, j) T c_##i##_##j = {0};
#define LOAD_SUM(T, i, j) c_##i##_##j = *(T *)(start + i * lds + j * LANES);
#define LOAD_B(T, i, j) T b_##j = *(T *)(b + j * LANES);
#define ADD_PRODUCT(T, i, j) c_##i##_##j += a[i * ra] * b_##j;
#define STORE_SUM(T, i, j) *(T *)(c + i * ldc + j * LANES) = c_##i##_##j;
#define DEFINE_TILE(T, V, R)                                                                                       \
    static void T##_##V##_##R(long n, const real *a, long ra, long ca, const real *b, long ldb, real *c, long ldc, \
                              const real *start, long lds) {                                                       \
        TILE_##R(ZERO_SUM, T, V) if (start) { TILE_##R(LOAD_SUM, T, V) }                                           \
        for (long k = 0; k < n; k++, a += ca, b += ldb) {                                                          \
            TILE_1(LOAD_B, T, V)                                                                                   \
            TILE_##R(ADD_PRODUCT, T, V)                                                                            \
        }                                                                                                          \
        TILE_##R(STORE_SUM, T, V)                                                                                  \
    }
#define DEFINE_TILES(R) DEFINE_TILE(half, 1, R) DEFINE_TILE(vec, 1, R) DEFINE_TILE(vec, 2, R) DEFINE_TILE(vec, 3, R)
#define TILES(R) {half_1_##R, vec_1_##R, vec_2_##R, vec_3_##R}
DEFINE_TILES(4)
DEFINE_TILES(2)
DEFINE_TILES(1)
typedef void tile_product(long, const real *, long, long, const real *, long, real *, long, const real *, long);
#if MOST_ROWS == 8
DEFINE_TILES(8)
static tile_product *const tiles[][VECTORS + 1] = {TILES(8), TILES(4), TILES(2), TILES(1)};
#else
static tile_product *const tiles[][VECTORS + 1] = {TILES(4), TILES(2), TILES(1)};
#endif

/* What to prefetch: `count` stretches of `size` bytes, `apart` from each other, the first one done up to `done`; `some`
   cache lines at a time, then the list `next`. */
#define LINE 64
typedef struct lines {
    const char *at;
    long size, apart, count, done, some;
    struct lines *next;
} lines;
#define LINES(p, numbers, apart, count, some, next) \
    ((lines){(const char *)(p), (numbers) * (long)sizeof(real), (apart) * (long)sizeof(real), count, 0, some, next})
static inline void prefetch(lines *soon) {
    for (long some = soon->some; some > 0;) {
        if (soon->count <= 0 || soon->size <= 0) {
            if (!soon->next) return;
            *soon = *soon->next;
            continue;
        }
        __builtin_prefetch(soon->at + soon->done, 0, 2);
        soon->done += LINE, some--;
        if (soon->done >= soon->size) soon->at += soon->apart, soon->count--, soon->done = 0;
    }
}

/* c = start + a b: a (m, k) with strides ra and ca, b (k, n) with rows ldb apart and padded to UP_HALF(n), c (m, n) with
   rows ldc apart; start (m, n) with rows lds apart may be c itself, one row (lds = 0) or null. */
__attribute__((noinline)) static void multiply(long m, long n, long k, const real *a, long ra, long ca, const real *b,
                                               long ldb, real *c, long ldc, const real *start, long lds, lines *soon) {
    real edge[MOST_ROWS * HALF];
    for (long j = 0, columns; j < n; j += columns) {
        /* even shares: a panel of one vector spends more on loads than on sums */
        long left = (n - j) / LANES, panels = (left + VECTORS - 1) / VECTORS;
        long vectors = left ? (left + panels - 1) / panels : 0;
        columns = vectors ? vectors * LANES : MIN(n - j, HALF);
        for (long i = 0, size = 0, rows = MOST_ROWS; i < m; i += rows) {
            while (rows > m - i) rows /= 2, size++;
            real *to = c + i * ldc + j;
            const real *from = start ? start + i * lds + j : 0;
            tile_product *product = tiles[size][vectors];
            prefetch(soon);
            if (columns >= HALF) {
                product(k, a + i * ra, ra, ca, b + j, ldb, to, ldc, from, lds);
                continue;
            }
            if (from)
                for (long r = 0; r < rows; r++) copy(from + r * lds, edge + r * HALF, columns);
            product(k, a + i * ra, ra, ca, b + j, ldb, edge, HALF, from ? edge : 0, HALF);
            for (long r = 0; r < rows; r++) copy(edge + r * HALF, to + r * ldc, columns);
        }
    }
}

/* (rows, width) with rows `width` apart to rows `ld` apart, the rest of each row zero. */
static void pad_rows(const real *from, long rows, long width, real *to, long ld) {
    for (long r = 0; r < rows; r++) {
        copy(from + r * width, to + r * ld, width);
        clear(to + r * ld + width, ld - width);
    }
}

/* The transpose of a square block as wide as a vector: blocks off the diagonal change places, of half the size first. */
#define UPPER(lane, A) ((lane) & (A) ? LANES + (lane) - (A) : (lane))
#define LOWER(lane, A) ((lane) & (A) ? LANES + (lane) : (lane) + (A))
#define SWAP(i, j, A)                   \
    {                                   \
        vec x = r##i, y = r##j;         \
        r##i = SHUFFLE(x, y, UPPER, A); \
        r##j = SHUFFLE(x, y, LOWER, A); \
    }
#define LOAD_ROW(i) vec r##i = AT(from + i * stride);
#define STORE_ROW(i) AT(to + i * ld) = r##i;
#define EACH_OF_4(M) M(0) M(1) M(2) M(3)
#define EACH_OF_8(M) EACH_OF_4(M) M(4) M(5) M(6) M(7)
#define EACH_OF_16(M) EACH_OF_8(M) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)
#if LANES == 16
#define EACH_ROW EACH_OF_16
#elif LANES == 8
#define EACH_ROW EACH_OF_8
#else
#define EACH_ROW EACH_OF_4
#endif
/* clang-format off */
static void transpose_block(const real *from, long stride, real *to, long ld) {
    EACH_ROW(LOAD_ROW)
#if LANES == 16
    SWAP(0, 8, 8) SWAP(1, 9, 8) SWAP(2, 10, 8) SWAP(3, 11, 8) SWAP(4, 12, 8) SWAP(5, 13, 8) SWAP(6, 14, 8) SWAP(7, 15, 8)
    SWAP(8, 12, 4) SWAP(9, 13, 4) SWAP(10, 14, 4) SWAP(11, 15, 4)
    SWAP(8, 10, 2) SWAP(9, 11, 2) SWAP(12, 14, 2) SWAP(13, 15, 2)
    SWAP(8, 9, 1) SWAP(10, 11, 1) SWAP(12, 13, 1) SWAP(14, 15, 1)
#endif
#if LANES >= 8
    SWAP(0, 4, 4) SWAP(1, 5, 4) SWAP(2, 6, 4) SWAP(3, 7, 4)
    SWAP(4, 6, 2) SWAP(5, 7, 2) SWAP(4, 5, 1) SWAP(6, 7, 1)
#endif
    SWAP(0, 2, 2) SWAP(1, 3, 2) SWAP(0, 1, 1) SWAP(2, 3, 1)
    EACH_ROW(STORE_ROW)
}
/* clang-format on */

/* (rows, width) with rows `stride` apart to (width, rows) with rows `ld` apart, zeros behind up to the next vector. */
static void transpose(const real *from, long stride, long rows, long width, real *to, long ld) {
    for (long i = 0; i < rows; i += LANES) {
        long whole = i + LANES <= rows ? width / LANES * LANES : 0;
        for (long j = 0; j < whole; j += LANES) transpose_block(from + i * stride + j, stride, to + j * ld + i, ld);
        for (long j = whole; j < width; j++)
            for (long l = i; l < MIN(i + LANES, ld); l++) to[j * ld + l] = l < rows ? from[l * stride + j] : 0;
    }
}
