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

static __mmask16 mask_of(size_t columns)
{
    return columns >= DL_PANEL ? (__mmask16)0xffff : (__mmask16)((1u << columns) - 1);
}

/* Rows of A that stay in the first-level cache while the panels of B pass. */
#define BLOCK_FLOATS 4096

static void gemm(const struct dl_gemm *g)
{
    /* Of packed panels, smaller tiles overlap better with each other. */
    if (g->b_row == DL_PANEL) {
        dl_gemm_avx2(g);
        return;
    }
    size_t block = g->k > 0 ? BLOCK_FLOATS / g->k / ROWS_MAX * ROWS_MAX : 0;
    if (block < ROWS_MAX) block = ROWS_MAX;
    for (size_t i0 = 0; i0 < g->m; i0 += block) {
        size_t end = g->m - i0 < block ? g->m : i0 + block;
        for (size_t j = 0; j < g->n; j += 2 * DL_PANEL) {
            const float *b = g->b + j / DL_PANEL * g->b_panel;
            const float *bias = g->bias ? g->bias + j : NULL;
            size_t columns = g->n - j;
            __mmask16 mask0 = mask_of(columns);
            __mmask16 mask1 = columns > DL_PANEL ? mask_of(columns - DL_PANEL) : 0;
            for (size_t i = i0; i < end; i += ROWS_MAX) {
                const float *a = g->a + i * g->a_row;
                float *c = g->c + i * g->c_row + j;
                if (columns > DL_PANEL)
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
