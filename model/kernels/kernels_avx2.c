/* Kernels for AVX2 with FMA. A tail shorter than a vector goes through masked
 * loads and the same arithmetic, so an element's value does not depend on where
 * it stands. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>

#include "model/kernels/kernels.h"

#define LANES 8
#define ROWS_MAX 6 /* 6 × 16: twelve accumulators, two of B, one of A in 16 registers */
#define INLINE static inline __attribute__((always_inline))

/* All ones in the first `count` lanes, count 0..8. */
INLINE __m256i mask_of(size_t count)
{
    static const int32_t ones[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(ones + LANES - (count < LANES ? count : LANES)));
}

INLINE float sum_of(__m256 x)
{
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_shuffle_ps(y, y, 1)));
}

INLINE float max_of(__m256 x)
{
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_shuffle_ps(y, y, 1)));
}

/* ---- matrix product -------------------------------------------------------- */

enum tail { WHOLE, WIDE, NARROW }; /* columns of the tile: 16, 9..15, 1..8 */

INLINE __m256 load(const float *x, int masked, __m256i mask)
{
    return masked ? _mm256_maskload_ps(x, mask) : _mm256_loadu_ps(x);
}

/* One tile of `rows` × (16 or fewer) columns. `rows` and `tail` are constants at
 * every call, so the loops unroll and the accumulators stay in registers. */
INLINE void tile(const struct dl_gemm *g, const float *a, const float *b, float *c,
                 const float *bias, const int rows, const enum tail tail, __m256i mask)
{
    const int two = tail != NARROW;
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
        if (tail == NARROW)
            _mm256_maskstore_ps(to, mask, sum[i][0]);
        else
            _mm256_storeu_ps(to, sum[i][0]);
        if (tail == WIDE) _mm256_maskstore_ps(to + LANES, mask, sum[i][1]);
        if (tail == WHOLE) _mm256_storeu_ps(to + LANES, sum[i][1]);
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

/* Rows of A that stay in the first-level cache while the panels of B pass. */
#define BLOCK_FLOATS 4096

static void gemm(const struct dl_gemm *g)
{
    size_t block = g->k > 0 ? BLOCK_FLOATS / g->k / ROWS_MAX * ROWS_MAX : 0;
    if (block < ROWS_MAX) block = ROWS_MAX;
    for (size_t i0 = 0; i0 < g->m; i0 += block) {
        size_t end = g->m - i0 < block ? g->m : i0 + block;
        for (size_t j = 0; j < g->n; j += DL_PANEL) {
            const float *b = g->b + j / DL_PANEL * g->b_panel;
            const float *bias = g->bias ? g->bias + j : NULL;
            size_t columns = g->n - j;
            for (size_t i = i0; i < end; i += ROWS_MAX) {
                const float *a = g->a + i * g->a_row;
                float *c = g->c + i * g->c_row + j;
                size_t rows = end - i;
                if (columns >= DL_PANEL)
                    tile_rows(g, a, b, c, bias, rows, WHOLE, _mm256_setzero_si256());
                else if (columns > LANES)
                    tile_rows(g, a, b, c, bias, rows, WIDE, mask_of(columns - LANES));
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

/* Transposes 8 rows of 8 held in registers. */
INLINE void transpose(__m256 r[LANES])
{
    __m256 t[LANES], u[LANES];
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
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

/* ---- elementary functions --------------------------------------------------- */

/* e^x = 2^n e^r with |r| ≤ ln2/2; the series to r⁷ leaves 5e-9. */
INLINE __m256 exp8(__m256 x)
{
    /* The second operand comes back where one is NaN. */
    x = _mm256_min_ps(_mm256_set1_ps(88.0f), _mm256_max_ps(_mm256_set1_ps(-87.0f), x));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752f), x); /* ln2, upper bits */
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860682e-6f), r);      /* and the rest */
    __m256 y = _mm256_set1_ps(1.0f / 5040);
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 720));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 120));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 24));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f / 6));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(0.5f));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.0f));
    __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), exponent));
}

static void exponential(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i += LANES) {
        __m256i mask = mask_of(n - i);
        _mm256_maskstore_ps(y + i, mask, exp8(_mm256_maskload_ps(x + i, mask)));
    }
}

/* x = k·π/2 + r with |r| ≤ π/4; k mod 4 picks and signs the two series. π/2 in
 * three parts, the first two short enough that k times them is exact. */
static void cos_sin(size_t n, const float *x, float *c, float *s)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    for (size_t i = 0; i < n; i += LANES) {
        __m256i mask = mask_of(n - i);
        __m256 v = _mm256_maskload_ps(x + i, mask);
        __m256 k = _mm256_round_ps(_mm256_mul_ps(v, _mm256_set1_ps(0.636619772f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        __m256 r = _mm256_fnmadd_ps(k, _mm256_set1_ps(1.5703125f), v);
        r = _mm256_fnmadd_ps(k, _mm256_set1_ps(4.837512969970703125e-4f), r);
        r = _mm256_fnmadd_ps(k, _mm256_set1_ps(7.5497899548918821e-8f), r);
        __m256 q = _mm256_mul_ps(r, r);
        __m256 sine = _mm256_set1_ps(1.0f / 362880);
        sine = _mm256_fmadd_ps(sine, q, _mm256_set1_ps(-1.0f / 5040));
        sine = _mm256_fmadd_ps(sine, q, _mm256_set1_ps(1.0f / 120));
        sine = _mm256_fmadd_ps(sine, q, _mm256_set1_ps(-1.0f / 6));
        sine = _mm256_fmadd_ps(_mm256_mul_ps(sine, q), r, r);
        __m256 cosine = _mm256_set1_ps(-1.0f / 3628800);
        cosine = _mm256_fmadd_ps(cosine, q, _mm256_set1_ps(1.0f / 40320));
        cosine = _mm256_fmadd_ps(cosine, q, _mm256_set1_ps(-1.0f / 720));
        cosine = _mm256_fmadd_ps(cosine, q, _mm256_set1_ps(1.0f / 24));
        cosine = _mm256_fmadd_ps(cosine, q, _mm256_set1_ps(-0.5f));
        cosine = _mm256_fmadd_ps(cosine, q, one);
        __m256i quarter = _mm256_cvtps_epi32(k);
        /* Odd quarters swap the two; bit 1 of k flips sine, of k + 1 cosine. */
        __m256 odd = _mm256_castsi256_ps(_mm256_slli_epi32(quarter, 31));
        __m256i bit = _mm256_set1_epi32(2);
        __m256 flip_s = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_and_si256(quarter, bit), 30));
        __m256 flip_c = _mm256_castsi256_ps(_mm256_slli_epi32(
            _mm256_and_si256(_mm256_add_epi32(quarter, _mm256_set1_epi32(1)), bit), 30));
        _mm256_maskstore_ps(c + i, mask,
                            _mm256_xor_ps(_mm256_blendv_ps(cosine, sine, odd), flip_c));
        if (s)
            _mm256_maskstore_ps(s + i, mask,
                                _mm256_xor_ps(_mm256_blendv_ps(sine, cosine, odd), flip_s));
    }
}

/* σ(2u) of the tanh form of GELU. */
INLINE __m256 gelu_gate(__m256 x)
{
    __m256 inner =
        _mm256_fmadd_ps(_mm256_mul_ps(_mm256_set1_ps(0.044715f), x), _mm256_mul_ps(x, x), x);
    __m256 e = exp8(_mm256_mul_ps(_mm256_set1_ps(-1.59576912f), inner));
    return _mm256_div_ps(_mm256_set1_ps(1.0f), _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

static void gelu(size_t n, const float *x, float *y)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 v = _mm256_loadu_ps(x + i);
        _mm256_storeu_ps(y + i, _mm256_mul_ps(v, gelu_gate(v)));
    }
    if (i < n) {
        __m256i mask = mask_of(n - i);
        __m256 v = _mm256_maskload_ps(x + i, mask);
        _mm256_maskstore_ps(y + i, mask, _mm256_mul_ps(v, gelu_gate(v)));
    }
}

static void gelu_backward(size_t n, const float *x, const float *dy, float *dx)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    for (size_t i = 0; i < n; i += LANES) {
        __m256i mask = mask_of(n - i);
        __m256 v = _mm256_maskload_ps(x + i, mask);
        __m256 s = gelu_gate(v);
        __m256 slope =
            _mm256_fmadd_ps(_mm256_mul_ps(v, v), _mm256_set1_ps(1.59576912f * 3 * 0.044715f),
                            _mm256_set1_ps(1.59576912f));
        __m256 rest =
            _mm256_mul_ps(_mm256_mul_ps(v, s), _mm256_mul_ps(_mm256_sub_ps(one, s), slope));
        __m256 d = _mm256_mul_ps(_mm256_maskload_ps(dy + i, mask), _mm256_add_ps(s, rest));
        _mm256_maskstore_ps(dx + i, mask, d);
    }
}

/* ---- rows ------------------------------------------------------------------- */

static void softmax(size_t rows, size_t n, float scale, float *x, size_t row)
{
    const size_t whole = n / LANES * LANES;
    const __m256i mask = mask_of(n - whole);
    const __m256 low = _mm256_set1_ps(-INFINITY), factor = _mm256_set1_ps(scale);
    for (size_t i = 0; i < rows; i++, x += row) {
        __m256 top = low, sum = _mm256_setzero_ps(), v = low;
        for (size_t j = 0; j < whole; j += LANES) top = _mm256_max_ps(top, _mm256_loadu_ps(x + j));
        if (whole < n) {
            v = _mm256_blendv_ps(low, _mm256_maskload_ps(x + whole, mask),
                                 _mm256_castsi256_ps(mask));
            top = _mm256_max_ps(top, v);
        }
        top = _mm256_set1_ps(max_of(top));
        for (size_t j = 0; j < whole; j += LANES) {
            __m256 e = exp8(_mm256_mul_ps(factor, _mm256_sub_ps(_mm256_loadu_ps(x + j), top)));
            _mm256_storeu_ps(x + j, e);
            sum = _mm256_add_ps(sum, e);
        }
        if (whole < n) {
            v = exp8(_mm256_mul_ps(factor, _mm256_sub_ps(v, top)));
            v = _mm256_and_ps(v, _mm256_castsi256_ps(mask));
            sum = _mm256_add_ps(sum, v);
        }
        __m256 share = _mm256_set1_ps(1.0f / sum_of(sum));
        for (size_t j = 0; j < whole; j += LANES)
            _mm256_storeu_ps(x + j, _mm256_mul_ps(_mm256_loadu_ps(x + j), share));
        if (whole < n) _mm256_maskstore_ps(x + whole, mask, _mm256_mul_ps(v, share));
    }
}

static void difference(size_t rows, size_t n, float lambda, const float *a1, const float *a2,
                       float *out, size_t row)
{
    const size_t whole = n / LANES * LANES;
    const __m256i mask = mask_of(n - whole);
    const __m256 factor = _mm256_set1_ps(lambda);
    for (size_t i = 0; i < rows; i++, a1 += row, a2 += row, out += row) {
        for (size_t j = 0; j < whole; j += LANES)
            _mm256_storeu_ps(out + j, _mm256_fnmadd_ps(factor, _mm256_loadu_ps(a2 + j),
                                                       _mm256_loadu_ps(a1 + j)));
        if (whole < n)
            _mm256_maskstore_ps(out + whole, mask,
                                _mm256_fnmadd_ps(factor, _mm256_maskload_ps(a2 + whole, mask),
                                                 _mm256_maskload_ps(a1 + whole, mask)));
    }
}

static float softmax_backward(size_t rows, size_t n, float scale, const float *a, const float *da,
                              float *ds, size_t row)
{
    const size_t whole = n / LANES * LANES;
    const __m256i mask = mask_of(n - whole);
    float total = 0;
    for (size_t i = 0; i < rows; i++, a += row, da += row, ds += row) {
        __m256 sum = _mm256_setzero_ps();
        for (size_t j = 0; j < whole; j += LANES)
            sum = _mm256_fmadd_ps(_mm256_loadu_ps(a + j), _mm256_loadu_ps(da + j), sum);
        if (whole < n)
            sum = _mm256_fmadd_ps(_mm256_maskload_ps(a + whole, mask),
                                  _mm256_maskload_ps(da + whole, mask), sum);
        float dot = sum_of(sum);
        total += dot;
        __m256 minus = _mm256_set1_ps(dot), factor = _mm256_set1_ps(scale);
        for (size_t j = 0; j < whole; j += LANES) {
            __m256 d = _mm256_sub_ps(_mm256_loadu_ps(da + j), minus);
            _mm256_storeu_ps(ds + j,
                             _mm256_mul_ps(_mm256_mul_ps(factor, _mm256_loadu_ps(a + j)), d));
        }
        if (whole < n) {
            __m256 d = _mm256_sub_ps(_mm256_maskload_ps(da + whole, mask), minus);
            __m256 v = _mm256_mul_ps(factor, _mm256_maskload_ps(a + whole, mask));
            _mm256_maskstore_ps(ds + whole, mask, _mm256_mul_ps(v, d));
        }
    }
    return total;
}

static void rmsnorm(size_t rows, size_t n, const float *x, size_t x_row, const float *gain,
                    float scale, float *y, size_t y_row, float *inverse)
{
    const size_t whole = n / LANES * LANES;
    const __m256i mask = mask_of(n - whole);
    for (size_t i = 0; i < rows; i++, x += x_row, y += y_row) {
        __m256 sum = _mm256_setzero_ps(), tail = sum;
        for (size_t j = 0; j < whole; j += LANES) {
            __m256 v = _mm256_loadu_ps(x + j);
            sum = _mm256_fmadd_ps(v, v, sum);
        }
        if (whole < n) {
            tail = _mm256_maskload_ps(x + whole, mask);
            sum = _mm256_fmadd_ps(tail, tail, sum);
        }
        float r = 1.0f / sqrtf(sum_of(sum) / (float)n + DL_RMSNORM_EPSILON);
        __m256 factor = _mm256_set1_ps(r * scale);
        for (size_t j = 0; j < whole; j += LANES) {
            __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + j), factor);
            if (gain) v = _mm256_mul_ps(v, _mm256_loadu_ps(gain + j));
            _mm256_storeu_ps(y + j, v);
        }
        if (whole < n) {
            tail = _mm256_mul_ps(tail, factor);
            if (gain) tail = _mm256_mul_ps(tail, _mm256_maskload_ps(gain + whole, mask));
            _mm256_maskstore_ps(y + whole, mask, tail);
        }
        if (inverse) inverse[i] = r;
    }
}

static void rmsnorm_backward(size_t rows, size_t n, const float *x, size_t x_row, const float *gain,
                             float scale, const float *inverse, const float *dy, size_t dy_row,
                             float *dx, size_t dx_row, int accumulate, float *dgain)
{
    const __m256 ones = _mm256_set1_ps(1.0f);
    for (size_t i = 0; i < rows; i++, x += x_row, dy += dy_row, dx += dx_row) {
        float r = inverse[i];
        __m256 sum = _mm256_setzero_ps();
        for (size_t j = 0; j < n; j += LANES) {
            __m256i mask = mask_of(n - j);
            __m256 g = gain ? _mm256_maskload_ps(gain + j, mask) : ones;
            __m256 v =
                _mm256_mul_ps(_mm256_maskload_ps(dy + j, mask), _mm256_maskload_ps(x + j, mask));
            sum = _mm256_fmadd_ps(v, g, sum);
        }
        __m256 back = _mm256_set1_ps(sum_of(sum) * scale / (float)n * r * r * r);
        __m256 factor = _mm256_set1_ps(scale * r);
        for (size_t j = 0; j < n; j += LANES) {
            __m256i mask = mask_of(n - j);
            __m256 v = _mm256_maskload_ps(x + j, mask);
            __m256 d = _mm256_mul_ps(_mm256_maskload_ps(dy + j, mask), factor);
            if (dgain)
                _mm256_maskstore_ps(dgain + j, mask,
                                    _mm256_fmadd_ps(d, v, _mm256_maskload_ps(dgain + j, mask)));
            if (gain) d = _mm256_mul_ps(d, _mm256_maskload_ps(gain + j, mask));
            d = _mm256_fnmadd_ps(back, v, d);
            if (accumulate) d = _mm256_add_ps(d, _mm256_maskload_ps(dx + j, mask));
            _mm256_maskstore_ps(dx + j, mask, d);
        }
    }
}

static void rotate(size_t rows, size_t heads, size_t h, float *x, size_t x_row,
                   const uint32_t *position, const float *cosine, const float *sine, int sign)
{
    const __m256 flip = _mm256_set1_ps(sign < 0 ? -0.0f : 0.0f);
    for (size_t i = 0; i < rows; i++, x += x_row) {
        for (size_t j = 0; j < h; j += LANES) {
            __m256i mask = mask_of(h - j);
            __m256 c = _mm256_maskload_ps(cosine + position[i] * h + j, mask);
            __m256 s = _mm256_xor_ps(_mm256_maskload_ps(sine + position[i] * h + j, mask), flip);
            float *low = x + j;
            for (size_t head = 0; head < heads; head++, low += 2 * h) {
                __m256 a = _mm256_maskload_ps(low, mask);
                __m256 b = _mm256_maskload_ps(low + h, mask);
                _mm256_maskstore_ps(low, mask, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
                _mm256_maskstore_ps(low + h, mask, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
            }
        }
    }
}

static void add(size_t n, const float *x, float *y)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    for (; i < n; i++) y[i] += x[i];
}

static void column_sums(size_t rows, size_t n, const float *x, size_t x_row, float *sums)
{
    for (size_t j = 0; j < n; j += LANES) {
        __m256i mask = mask_of(n - j);
        __m256 sum = _mm256_setzero_ps();
        for (size_t i = 0; i < rows; i++)
            sum = _mm256_add_ps(sum, _mm256_maskload_ps(x + i * x_row + j, mask));
        _mm256_maskstore_ps(sums + j, mask, _mm256_add_ps(_mm256_maskload_ps(sums + j, mask), sum));
    }
}

static double square_sum(size_t n, const float *x)
{
    __m256d low = _mm256_setzero_pd(), high = low;
    for (size_t i = 0; i < n; i += LANES) {
        __m256 v = _mm256_maskload_ps(x + i, mask_of(n - i));
        __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
        __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
        low = _mm256_fmadd_pd(a, a, low);
        high = _mm256_fmadd_pd(b, b, high);
    }
    double part[4];
    _mm256_storeu_pd(part, _mm256_add_pd(low, high));
    return part[0] + part[1] + part[2] + part[3];
}

static void adamw(size_t n, const struct dl_adamw_step *t, const float *gradient, float *m,
                  float *v, float *x)
{
    const __m256 beta1 = _mm256_set1_ps(t->beta1), rest1 = _mm256_set1_ps(1 - t->beta1);
    const __m256 beta2 = _mm256_set1_ps(t->beta2), rest2 = _mm256_set1_ps(1 - t->beta2);
    const __m256 keep = _mm256_set1_ps(1 - t->rate * t->decay), scale = _mm256_set1_ps(t->scale);
    const __m256 c1 = _mm256_set1_ps(t->correction1), c2 = _mm256_set1_ps(t->correction2);
    const __m256 rate = _mm256_set1_ps(t->rate), epsilon = _mm256_set1_ps(t->epsilon);
    for (size_t i = 0; i < n; i += LANES) {
        __m256i mask = mask_of(n - i);
        __m256 g = _mm256_mul_ps(_mm256_maskload_ps(gradient + i, mask), scale);
        __m256 first = _mm256_mul_ps(beta1, _mm256_maskload_ps(m + i, mask));
        first = _mm256_add_ps(first, _mm256_mul_ps(rest1, g));
        __m256 second = _mm256_mul_ps(beta2, _mm256_maskload_ps(v + i, mask));
        second = _mm256_add_ps(second, _mm256_mul_ps(_mm256_mul_ps(rest2, g), g));
        __m256 root = _mm256_add_ps(_mm256_sqrt_ps(_mm256_div_ps(second, c2)), epsilon);
        __m256 move = _mm256_div_ps(_mm256_mul_ps(rate, _mm256_div_ps(first, c1)), root);
        __m256 value = _mm256_mul_ps(_mm256_maskload_ps(x + i, mask), keep);
        _mm256_maskstore_ps(m + i, mask, first);
        _mm256_maskstore_ps(v + i, mask, second);
        _mm256_maskstore_ps(x + i, mask, _mm256_sub_ps(value, move));
    }
}

void dl_kernels_fill_avx2(struct dl_kernels *kernels)
{
    kernels->name = "avx2";
    kernels->gemm = gemm;
    kernels->pack_rows = pack_rows;
    kernels->pack_transposed = pack_transposed;
    kernels->softmax = softmax;
    kernels->difference = difference;
    kernels->softmax_backward = softmax_backward;
    kernels->rmsnorm = rmsnorm;
    kernels->rmsnorm_backward = rmsnorm_backward;
    kernels->gelu = gelu;
    kernels->gelu_backward = gelu_backward;
    kernels->exp = exponential;
    kernels->cos_sin = cos_sin;
    kernels->rotate = rotate;
    kernels->add = add;
    kernels->column_sums = column_sums;
    kernels->square_sum = square_sum;
    kernels->adamw = adamw;
}

#endif
