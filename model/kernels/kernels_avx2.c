/* The matrix product for AVX2 with FMA, and packing for it. */
#if defined(__x86_64__)

#include "model/kernels/kernels_avx2.h"

#define ROWS_MAX 6 /* 6 × 16: twelve accumulators, two of B, one of A in 16 registers */

/* ---- matrix product -------------------------------------------------------- */

enum tail { WHOLE, WIDE, HALF, NARROW }; /* columns of the tile: 16, 9..15, 8, 1..7 */

/* One tile of `rows` × (16 or fewer) columns. `rows` and `tail` are constants at
 * every call, so the loops unroll and the accumulators stay in registers. */
INLINE void tile(const struct dl_gemm *g, const float *a, const float *b, float *c,
                 const float *bias, const int rows, const enum tail tail, __m256i mask)
{
    const int two = tail == WHOLE || tail == WIDE;
    __m256 sum[ROWS_MAX][2];
    __m256 bias0 = _mm256_setzero_ps(), bias1 = bias0;
    if (bias != NULL) {
        bias0 = load(bias, tail == NARROW, mask);
        if (two) bias1 = load(bias + LANES, tail == WIDE, mask);
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        sum[i][0] = bias0;
        sum[i][1] = bias1;
    }
    const size_t a_row = g->a_row, a_column = g->a_column, b_row = g->b_row;
    for (size_t p = g->k; p > 0; p--) {
        __m256 b0 = load(b, tail == NARROW, mask);
        __m256 b1 = two ? load(b + LANES, tail == WIDE, mask) : b0;
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            __m256 x = _mm256_broadcast_ss(a + (size_t)i * a_row);
            sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
            if (two) sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
        }
        a += a_column;
        b += b_row;
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        float *to = c + (size_t)i * g->c_row;
        if (g->accumulate) {
            sum[i][0] = _mm256_add_ps(load(to, tail == NARROW, mask), sum[i][0]);
            if (two) sum[i][1] = _mm256_add_ps(load(to + LANES, tail == WIDE, mask), sum[i][1]);
        }
        store(to, tail == NARROW, mask, sum[i][0]);
        if (two) store(to + LANES, tail == WIDE, mask, sum[i][1]);
    }
}

INLINE void tile_rows(const struct dl_gemm *g, const float *a, const float *b, float *c,
                      const float *bias, size_t rows, const enum tail tail, __m256i mask)
{
    switch (rows) {
    case 1:
        tile(g, a, b, c, bias, 1, tail, mask);
        break;
    case 2:
        tile(g, a, b, c, bias, 2, tail, mask);
        break;
    case 3:
        tile(g, a, b, c, bias, 3, tail, mask);
        break;
    case 4:
        tile(g, a, b, c, bias, 4, tail, mask);
        break;
    case 5:
        tile(g, a, b, c, bias, 5, tail, mask);
        break;
    default:
        tile(g, a, b, c, bias, 6, tail, mask);
        break;
    }
}

/* One tile of `rows` (constant, up to 4) × 17 to 24 columns: a third of the
 * vectors that a narrow tile would leave half idle. Twelve accumulators, three of
 * B, one of A. */
#define ROWS_24 4

INLINE void tile24(const struct dl_gemm *g, const float *a, const float *b, float *c,
                   const float *bias, const int rows, const int masked, __m256i mask)
{
    const float *next = b + g->b_panel;
    __m256 sum[ROWS_24][3], bias0 = _mm256_setzero_ps(), bias1 = bias0, bias2 = bias0;
    if (bias != NULL) {
        bias0 = _mm256_loadu_ps(bias);
        bias1 = _mm256_loadu_ps(bias + LANES);
        bias2 = load(bias + DL_PANEL, masked, mask);
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        sum[i][0] = bias0;
        sum[i][1] = bias1;
        sum[i][2] = bias2;
    }
    for (size_t p = g->k; p > 0; p--) {
        __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + LANES);
        __m256 b2 = load(next, masked, mask);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            __m256 x = _mm256_broadcast_ss(a + (size_t)i * g->a_row);
            sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
            sum[i][2] = _mm256_fmadd_ps(x, b2, sum[i][2]);
        }
        a += g->a_column;
        b += g->b_row;
        next += g->b_row;
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        float *to = c + (size_t)i * g->c_row;
        if (g->accumulate) {
            sum[i][0] = _mm256_add_ps(_mm256_loadu_ps(to), sum[i][0]);
            sum[i][1] = _mm256_add_ps(_mm256_loadu_ps(to + LANES), sum[i][1]);
            sum[i][2] = _mm256_add_ps(load(to + DL_PANEL, masked, mask), sum[i][2]);
        }
        _mm256_storeu_ps(to, sum[i][0]);
        _mm256_storeu_ps(to + LANES, sum[i][1]);
        store(to + DL_PANEL, masked, mask, sum[i][2]);
    }
}

/* All rows of the last 17 to 24 columns. */
INLINE void columns24(const struct dl_gemm *g, const float *b, float *c, const float *bias,
                      const int masked, __m256i mask)
{
    size_t i = 0;
    for (; i + ROWS_24 <= g->m; i += ROWS_24)
        tile24(g, g->a + i * g->a_row, b, c + i * g->c_row, bias, ROWS_24, masked, mask);
    for (; i + 2 <= g->m; i += 2)
        tile24(g, g->a + i * g->a_row, b, c + i * g->c_row, bias, 2, masked, mask);
    if (i < g->m) tile24(g, g->a + i * g->a_row, b, c + i * g->c_row, bias, 1, masked, mask);
}

/* Rows of A that stay in the first-level cache while the panels of B pass. */
#define BLOCK_FLOATS 4096

void dl_gemm_avx2(const struct dl_gemm *g)
{
    size_t block = g->k > 0 ? BLOCK_FLOATS / g->k / ROWS_MAX * ROWS_MAX : 0;
    if (block < ROWS_MAX) block = ROWS_MAX;
    for (size_t i0 = 0; i0 < g->m; i0 += block) {
        size_t end = g->m - i0 < block ? g->m : i0 + block;
        for (size_t j = 0; j < g->n; j += DL_PANEL) {
            const float *b = g->b + j / DL_PANEL * g->b_panel;
            const float *bias = g->bias ? g->bias + j : NULL;
            size_t columns = g->n - j;
            if (columns > DL_PANEL && columns <= 24) {
                if (i0 == 0 && columns == 24)
                    columns24(g, b, g->c + j, bias, 0, _mm256_setzero_si256());
                else if (i0 == 0)
                    columns24(g, b, g->c + j, bias, 1, mask_of(columns - DL_PANEL));
                break;
            }
            for (size_t i = i0; i < end; i += ROWS_MAX) {
                const float *a = g->a + i * g->a_row;
                float *c = g->c + i * g->c_row + j;
                size_t rows = end - i;
                if (columns >= DL_PANEL)
                    tile_rows(g, a, b, c, bias, rows, WHOLE, _mm256_setzero_si256());
                else if (columns > LANES)
                    tile_rows(g, a, b, c, bias, rows, WIDE, mask_of(columns - LANES));
                else if (columns == LANES)
                    tile_rows(g, a, b, c, bias, rows, HALF, _mm256_setzero_si256());
                else
                    tile_rows(g, a, b, c, bias, rows, NARROW, mask_of(columns));
            }
        }
    }
}

static void pack_rows(size_t k, size_t n, const float *source, size_t row, float *packed)
{
    for (size_t j = 0; j < n; j += DL_PANEL) {
        size_t columns = n - j;
        __m256i low = mask_of(columns), high = mask_of(columns > LANES ? columns - LANES : 0);
        const float *from = source + j;
        for (size_t p = 0; p < k; p++, from += row, packed += DL_PANEL) {
            _mm256_storeu_ps(packed, _mm256_maskload_ps(from, low));
            _mm256_storeu_ps(packed + LANES, columns > LANES
                                                 ? _mm256_maskload_ps(from + LANES, high)
                                                 : _mm256_setzero_ps());
        }
    }
}

static void pack_transposed(size_t k, size_t n, const float *source, size_t row, float *packed)
{
    for (size_t j0 = 0; j0 < n; j0 += LANES) {
        /* Half a panel at a time: columns j0..j0+7. */
        float *to = packed + j0 / DL_PANEL * DL_PANEL * k + j0 % DL_PANEL;
        size_t columns = n - j0 < LANES ? n - j0 : LANES;
        for (size_t p = 0; p < k; p += LANES) {
            __m256i mask = mask_of(k - p);
            __m256 r[LANES];
            for (size_t j = 0; j < LANES; j++)
                r[j] = j < columns ? _mm256_maskload_ps(source + (j0 + j) * row + p, mask)
                                   : _mm256_setzero_ps();
            transpose(r);
            for (size_t q = 0; q < LANES && p + q < k; q++)
                _mm256_storeu_ps(to + (p + q) * DL_PANEL, r[q]);
        }
    }
    if ((n + LANES - 1) / LANES % 2 == 1) { /* the last panel's second half */
        float *to = packed + n / DL_PANEL * DL_PANEL * k + LANES;
        for (size_t p = 0; p < k; p++) _mm256_storeu_ps(to + p * DL_PANEL, _mm256_setzero_ps());
    }
}

void dl_kernels_fill_avx2(struct dl_kernels *kernels)
{
    kernels->name = "avx2";
    kernels->gemm = dl_gemm_avx2;
    kernels->pack_rows = pack_rows;
    kernels->pack_transposed = pack_transposed;
}

#endif
