/* Kernels for AVX-512: the matrix product on 32 wide registers. Everything
 * else keeps the AVX2 version, which is bound by other things. */
#if defined(__x86_64__)

#include <immintrin.h>

#include "model/kernels/kernels.h"

#define ROWS_MAX 12 /* 12 × 32: 24 accumulators, two of B; A is broadcast from memory */
#define INLINE static inline __attribute__((always_inline))

/* One tile of `rows` (constant) × one or two panels. The masks cover columns
 * beyond the matrix. */
INLINE void tile(const struct dl_gemm *g, const float *a, const float *b, float *c,
                 const float *bias, const int rows, const int two, __mmask16 mask0, __mmask16 mask1)
{
    __m512 sum[ROWS_MAX][2];
    __m512 bias0 = _mm512_setzero_ps(), bias1 = bias0;
    if (bias != NULL) {
        bias0 = _mm512_maskz_loadu_ps(mask0, bias);
        if (two) bias1 = _mm512_maskz_loadu_ps(mask1, bias + DL_PANEL);
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        sum[i][0] = bias0;
        sum[i][1] = bias1;
    }
    const size_t a_row = g->a_row, a_column = g->a_column, b_row = g->b_row;
    const float *next = b + g->b_panel;
    /* Four bases of three rows each: base + 0, 1, 2 × a_row are addresses that an
     * instruction can form, where twelve pointers would not fit the registers. */
    const float *base[4] = {a, a + 3 * a_row, a + 6 * a_row, a + 9 * a_row};
    for (size_t p = g->k; p > 0; p--) {
        __m512 b0 = _mm512_maskz_loadu_ps(mask0, b);
        __m512 b1 = two ? _mm512_maskz_loadu_ps(mask1, next) : b0;
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            __m512 x = _mm512_set1_ps(base[i / 3][(size_t)(i % 3) * a_row]);
            sum[i][0] = _mm512_fmadd_ps(x, b0, sum[i][0]);
            if (two) sum[i][1] = _mm512_fmadd_ps(x, b1, sum[i][1]);
        }
        for (int i = 0; i < 4; i++) base[i] += a_column;
        b += b_row;
        next += b_row;
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        float *to = c + (size_t)i * g->c_row;
        if (g->accumulate) {
            sum[i][0] = _mm512_add_ps(_mm512_maskz_loadu_ps(mask0, to), sum[i][0]);
            if (two)
                sum[i][1] = _mm512_add_ps(_mm512_maskz_loadu_ps(mask1, to + DL_PANEL), sum[i][1]);
        }
        _mm512_mask_storeu_ps(to, mask0, sum[i][0]);
        if (two) _mm512_mask_storeu_ps(to + DL_PANEL, mask1, sum[i][1]);
    }
}

INLINE void tile_rows(const struct dl_gemm *g, const float *a, const float *b, float *c,
                      const float *bias, size_t rows, const int two, __mmask16 mask0,
                      __mmask16 mask1)
{
    switch (rows) {
    case 1:
        tile(g, a, b, c, bias, 1, two, mask0, mask1);
        break;
    case 2:
        tile(g, a, b, c, bias, 2, two, mask0, mask1);
        break;
    case 3:
        tile(g, a, b, c, bias, 3, two, mask0, mask1);
        break;
    case 4:
        tile(g, a, b, c, bias, 4, two, mask0, mask1);
        break;
    case 5:
        tile(g, a, b, c, bias, 5, two, mask0, mask1);
        break;
    case 6:
        tile(g, a, b, c, bias, 6, two, mask0, mask1);
        break;
    case 7:
        tile(g, a, b, c, bias, 7, two, mask0, mask1);
        break;
    case 8:
        tile(g, a, b, c, bias, 8, two, mask0, mask1);
        break;
    case 9:
        tile(g, a, b, c, bias, 9, two, mask0, mask1);
        break;
    case 10:
        tile(g, a, b, c, bias, 10, two, mask0, mask1);
        break;
    case 11:
        tile(g, a, b, c, bias, 11, two, mask0, mask1);
        break;
    default:
        tile(g, a, b, c, bias, 12, two, mask0, mask1);
        break;
    }
}

/* One tile of `rows` (constant, up to 9) × 17 to 24 columns: one panel and half of
 * the next, in vectors of eight, as half of a wide one would go to waste. 27
 * accumulators, three of B. */
#define ROWS_24 9

INLINE void tile24(const struct dl_gemm *g, const float *a, const float *b, float *c,
                   const float *bias, const int rows, __mmask8 mask)
{
    const size_t a_row = g->a_row, a_column = g->a_column, b_row = g->b_row;
    const float *next = b + g->b_panel, *base[3] = {a, a + 3 * a_row, a + 6 * a_row};
    __m256 sum[ROWS_24][3], bias0 = _mm256_setzero_ps(), bias1 = bias0, bias2 = bias0;
    if (bias != NULL) {
        bias0 = _mm256_loadu_ps(bias);
        bias1 = _mm256_loadu_ps(bias + 8);
        bias2 = _mm256_maskz_loadu_ps(mask, bias + 16);
    }
#pragma GCC unroll 9
    for (int i = 0; i < rows; i++) {
        sum[i][0] = bias0;
        sum[i][1] = bias1;
        sum[i][2] = bias2;
    }
    for (size_t p = g->k; p > 0; p--) {
        __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
        __m256 b2 = _mm256_maskz_loadu_ps(mask, next);
#pragma GCC unroll 9
        for (int i = 0; i < rows; i++) {
            __m256 x = _mm256_set1_ps(base[i / 3][(size_t)(i % 3) * a_row]);
            sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
            sum[i][2] = _mm256_fmadd_ps(x, b2, sum[i][2]);
        }
        for (int i = 0; i < 3; i++) base[i] += a_column;
        b += b_row;
        next += b_row;
    }
#pragma GCC unroll 9
    for (int i = 0; i < rows; i++) {
        float *to = c + (size_t)i * g->c_row;
        if (g->accumulate) {
            sum[i][0] = _mm256_add_ps(_mm256_loadu_ps(to), sum[i][0]);
            sum[i][1] = _mm256_add_ps(_mm256_loadu_ps(to + 8), sum[i][1]);
            sum[i][2] = _mm256_add_ps(_mm256_maskz_loadu_ps(mask, to + 16), sum[i][2]);
        }
        _mm256_storeu_ps(to, sum[i][0]);
        _mm256_storeu_ps(to + 8, sum[i][1]);
        _mm256_mask_storeu_ps(to + 16, mask, sum[i][2]);
    }
}

/* All rows of the last 17 to 24 columns. */
static void columns24(const struct dl_gemm *g, const float *b, float *c, const float *bias,
                      size_t columns)
{
    const __mmask8 mask = (__mmask8)((1u << (columns - DL_PANEL)) - 1);
    size_t i = 0;
    for (; i + ROWS_24 <= g->m; i += ROWS_24)
        tile24(g, g->a + i * g->a_row, b, c + i * g->c_row, bias, ROWS_24, mask);
    for (; i + 3 <= g->m; i += 3)
        tile24(g, g->a + i * g->a_row, b, c + i * g->c_row, bias, 3, mask);
    for (; i < g->m; i++) tile24(g, g->a + i * g->a_row, b, c + i * g->c_row, bias, 1, mask);
}

static __mmask16 mask_of(size_t columns)
{
    return columns >= DL_PANEL ? (__mmask16)0xffff : (__mmask16)((1u << columns) - 1);
}

/* Rows of A that stay in the first-level cache while the panels of B pass. */
#define BLOCK_FLOATS 4096

static void gemm(const struct dl_gemm *g)
{
    /* Whole panels, packed: the smaller tiles overlap better with each other. */
    if (g->n % DL_PANEL == 0 && g->b_row == DL_PANEL) {
        dl_gemm_avx2(g);
        return;
    }
    size_t block = g->k > 0 ? BLOCK_FLOATS / g->k / ROWS_MAX * ROWS_MAX : 0;
    if (block < ROWS_MAX) block = ROWS_MAX;
    for (size_t i0 = 0; i0 < g->m; i0 += block) {
        size_t end = g->m - i0 < block ? g->m : i0 + block;
        for (size_t j = 0, wide; j < g->n; j += wide) {
            const float *b = g->b + j / DL_PANEL * g->b_panel;
            const float *bias = g->bias ? g->bias + j : NULL;
            size_t columns = g->n - j;
            if (columns > DL_PANEL && columns <= 24) {
                if (i0 == 0) columns24(g, b, g->c + j, bias, columns);
                break;
            }
            /* Panels go by two, but for one that leaves 17 to 24 columns. */
            wide = columns > 2 * DL_PANEL && columns <= 40 ? DL_PANEL : 2 * DL_PANEL;
            const int two = columns > DL_PANEL && wide > DL_PANEL;
            __mmask16 mask0 = mask_of(columns);
            __mmask16 mask1 = columns > DL_PANEL ? mask_of(columns - DL_PANEL) : 0;
            for (size_t i = i0; i < end; i += ROWS_MAX) {
                const float *a = g->a + i * g->a_row;
                float *c = g->c + i * g->c_row + j;
                if (two)
                    tile_rows(g, a, b, c, bias, end - i, 1, mask0, mask1);
                else
                    tile_rows(g, a, b, c, bias, end - i, 0, mask0, mask1);
            }
        }
    }
}

void dl_kernels_fill_avx512(struct dl_kernels *kernels)
{
    kernels->name = "avx512";
    kernels->gemm = gemm;
}

#endif
