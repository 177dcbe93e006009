/* Element-wise kernels for AVX-512: sixteen lanes, and instructions that round
 * and scale by a power of two at once. Tails go through masks and the same
 * arithmetic, so an element's value does not depend on where it stands. */
#if defined(__x86_64__)

#include <immintrin.h>

#include "model/kernels/kernels.h"

#define LANES 16
#define INLINE static inline __attribute__((always_inline))

INLINE __mmask16 mask_of(size_t count)
{
    return count >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << count) - 1);
}

/* 2^t as in kernels_avx2.c; it needs no bounds, beyond which it is 0 or ∞. */
INLINE __m512 exp2_of(__m512 t)
{
    __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 f = _mm512_sub_ps(t, n);
    __m512 y = _mm512_set1_ps(1.32647273e-3f);
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(9.67151299e-3f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(5.55073358e-2f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(2.40222424e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(6.93147004e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(y, n);
}

INLINE __m256 exp2_of8(__m256 t)
{
    __m256 n = _mm256_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 f = _mm256_sub_ps(t, n);
    __m256 y = _mm256_set1_ps(1.32647273e-3f);
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(9.67151299e-3f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(5.55073358e-2f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(2.40222424e-1f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(6.93147004e-1f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(1.0f));
    return _mm256_scalef_ps(y, n);
}

/* ---- GELU ---------------------------------------------------------------------- */

/* 1/σ(2u) of the tanh form: 1 + 2^t, t = −2u log2 e. */
INLINE __m512 gelu_divisor(__m512 x)
{
    __m512 t = _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(-1.02943240e-1f),
                               _mm512_set1_ps(-2.30220820f));
    return _mm512_add_ps(_mm512_set1_ps(1.0f), exp2_of(_mm512_mul_ps(t, x)));
}

static void gelu(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 mask = mask_of(n - i);
        __m512 v = _mm512_maskz_loadu_ps(mask, x + i);
        _mm512_mask_storeu_ps(y + i, mask, _mm512_div_ps(v, gelu_divisor(v)));
    }
}

static void gelu_backward(size_t n, const float *x, const float *dy, float *dx)
{
    const __m512 one = _mm512_set1_ps(1.0f), linear = _mm512_set1_ps(1.59576912f),
                 cubic = _mm512_set1_ps(1.59576912f * 3 * 0.044715f);
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 mask = mask_of(n - i);
        __m512 v = _mm512_maskz_loadu_ps(mask, x + i), s = _mm512_div_ps(one, gelu_divisor(v));
        __m512 slope = _mm512_fmadd_ps(_mm512_mul_ps(v, v), cubic, linear);
        __m512 rest =
            _mm512_mul_ps(_mm512_mul_ps(v, s), _mm512_mul_ps(_mm512_sub_ps(one, s), slope));
        _mm512_mask_storeu_ps(
            dx + i, mask,
            _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, dy + i), _mm512_add_ps(s, rest)));
    }
}

/* ---- softmax ------------------------------------------------------------------- */

/* A vector of columns: sixteen, or the eight that a padded row may end with. */
INLINE void softmax16(size_t n, float factor, float *x, size_t row)
{
    __m512 top = _mm512_loadu_ps(x), sum = _mm512_setzero_ps();
    for (size_t i = row; i < n * row; i += row) top = _mm512_max_ps(top, _mm512_loadu_ps(x + i));
    for (size_t i = 0; i < n * row; i += row) {
        __m512 t = _mm512_sub_ps(_mm512_loadu_ps(x + i), top);
        __m512 e = exp2_of(_mm512_mul_ps(t, _mm512_set1_ps(factor)));
        _mm512_storeu_ps(x + i, e);
        sum = _mm512_add_ps(sum, e);
    }
    _mm512_storeu_ps(x + n * row, _mm512_div_ps(_mm512_set1_ps(1.0f), sum));
}

INLINE void softmax8(size_t n, float factor, float *x, size_t row)
{
    __m256 top = _mm256_loadu_ps(x), sum = _mm256_setzero_ps();
    for (size_t i = row; i < n * row; i += row) top = _mm256_max_ps(top, _mm256_loadu_ps(x + i));
    for (size_t i = 0; i < n * row; i += row) {
        __m256 t = _mm256_sub_ps(_mm256_loadu_ps(x + i), top);
        __m256 e = exp2_of8(_mm256_mul_ps(t, _mm256_set1_ps(factor)));
        _mm256_storeu_ps(x + i, e);
        sum = _mm256_add_ps(sum, e);
    }
    _mm256_storeu_ps(x + n * row, _mm256_div_ps(_mm256_set1_ps(1.0f), sum));
}

static void softmax(size_t n, size_t columns, float scale, float *x, size_t row)
{
    const float factor = scale * 1.44269504f;
    size_t j = 0;
    if (n == 0) return;
    for (; j + LANES / 2 < columns; j += LANES) softmax16(n, factor, x + j, row);
    if (j < columns) softmax8(n, factor, x + j, row);
}

/* ---- norms --------------------------------------------------------------------- */

/* The sums of sixteen vectors, in order. */
INLINE __m512 sums_of(const __m512 v[LANES])
{
    __m512 t[8], u[4], w[2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        t[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]),
                             _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512d a = _mm512_castps_pd(t[2 * i]), b = _mm512_castps_pd(t[2 * i + 1]);
        u[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        w[i] = _mm512_add_ps(_mm512_shuffle_f32x4(u[2 * i], u[2 * i + 1], 0x88),
                             _mm512_shuffle_f32x4(u[2 * i], u[2 * i + 1], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(w[0], w[1], 0x88),
                         _mm512_shuffle_f32x4(w[0], w[1], 0xdd));
}

/* Σ x · y ∘ gain of each of up to sixteen rows; the last stands in for those that
 * are missing. */
INLINE __m512 row_dots(size_t rows, size_t n, const float *x, size_t x_row, const float *y,
                       size_t y_row, const float *gain)
{
    __m512 sum[LANES];
#pragma GCC unroll 16
    for (size_t i = 0; i < LANES; i++) {
        const size_t at = i < rows ? i : rows - 1;
        sum[i] = _mm512_setzero_ps();
        for (size_t j = 0; j < n; j += LANES) {
            const __mmask16 mask = mask_of(n - j);
            __m512 v = _mm512_maskz_loadu_ps(mask, y + at * y_row + j);
            if (gain) v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(mask, gain + j));
            sum[i] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, x + at * x_row + j), v, sum[i]);
        }
    }
    return sums_of(sum);
}

INLINE void rmsnorm_of(size_t rows, const size_t n, const float *x, size_t x_row, const float *gain,
                       float scale, float *y, size_t y_row, float *inverse)
{
    const __m512 count = _mm512_set1_ps(1 / (float)n), half = _mm512_set1_ps(0.5f);
    for (size_t first = 0; first < rows; first += LANES) {
        const size_t block = rows - first < LANES ? rows - first : LANES;
        float factor[LANES];
        __m512 mean = block == LANES ? row_dots(LANES, n, x, x_row, x, x_row, NULL)
                                     : row_dots(block, n, x, x_row, x, x_row, NULL);
        mean = _mm512_fmadd_ps(mean, count, _mm512_set1_ps(DL_RMSNORM_EPSILON));
        /* A guess of fourteen bits and a step of Newton's: r (3 − m r²)/2. */
        __m512 r = _mm512_rsqrt14_ps(mean);
        __m512 rest = _mm512_fnmadd_ps(_mm512_mul_ps(mean, r), r, _mm512_set1_ps(3.0f));
        r = _mm512_mul_ps(_mm512_mul_ps(r, half), rest);
        if (inverse) _mm512_mask_storeu_ps(inverse + first, mask_of(block), r);
        _mm512_storeu_ps(factor, _mm512_mul_ps(r, _mm512_set1_ps(scale)));
        for (size_t j = 0; j < n; j += LANES) {
            const __mmask16 mask = mask_of(n - j);
            const __m512 g = gain ? _mm512_maskz_loadu_ps(mask, gain + j) : _mm512_set1_ps(1.0f);
            for (size_t i = 0; i < block; i++) {
                __m512 v = _mm512_maskz_loadu_ps(mask, x + i * x_row + j);
                v = _mm512_mul_ps(_mm512_mul_ps(v, _mm512_set1_ps(factor[i])), g);
                _mm512_mask_storeu_ps(y + i * y_row + j, mask, v);
            }
        }
        x += block * x_row;
        y += block * y_row;
    }
}

/* Widths that are common unroll. */
static void rmsnorm(size_t rows, size_t n, const float *x, size_t x_row, const float *gain,
                    float scale, float *y, size_t y_row, float *inverse)
{
    if (n == 16)
        rmsnorm_of(rows, 16, x, x_row, gain, scale, y, y_row, inverse);
    else if (n == 32)
        rmsnorm_of(rows, 32, x, x_row, gain, scale, y, y_row, inverse);
    else if (n == 64)
        rmsnorm_of(rows, 64, x, x_row, gain, scale, y, y_row, inverse);
    else
        rmsnorm_of(rows, n, x, x_row, gain, scale, y, y_row, inverse);
}

static void rmsnorm_backward(size_t rows, size_t n, const float *x, size_t x_row, const float *gain,
                             float scale, const float *inverse, const float *dy, size_t dy_row,
                             float *dx, size_t dx_row, int accumulate, float *dgain)
{
    for (size_t first = 0; first < rows; first += LANES) {
        const size_t block = rows - first < LANES ? rows - first : LANES;
        float factor[LANES], back[LANES];
        __m512 r = _mm512_maskz_loadu_ps(mask_of(block), inverse + first);
        __m512 scaled = _mm512_mul_ps(r, _mm512_set1_ps(scale));
        __m512 dot = _mm512_mul_ps(row_dots(block, n, x, x_row, dy, dy_row, gain),
                                   _mm512_set1_ps(1 / (float)n));
        _mm512_storeu_ps(factor, scaled);
        _mm512_storeu_ps(back, _mm512_mul_ps(_mm512_mul_ps(dot, scaled), _mm512_mul_ps(r, r)));
        for (size_t j = 0; j < n; j += LANES) {
            const __mmask16 mask = mask_of(n - j);
            const __m512 g = gain ? _mm512_maskz_loadu_ps(mask, gain + j) : _mm512_set1_ps(1.0f);
            __m512 slope = _mm512_setzero_ps();
            for (size_t i = 0; i < block; i++) {
                __m512 v = _mm512_maskz_loadu_ps(mask, x + i * x_row + j);
                __m512 d = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, dy + i * dy_row + j),
                                         _mm512_set1_ps(factor[i]));
                slope = _mm512_fmadd_ps(d, v, slope);
                d = _mm512_fnmadd_ps(_mm512_set1_ps(back[i]), v, _mm512_mul_ps(d, g));
                float *to = dx + i * dx_row + j;
                if (accumulate) d = _mm512_add_ps(d, _mm512_maskz_loadu_ps(mask, to));
                _mm512_mask_storeu_ps(to, mask, d);
            }
            if (!dgain) continue;
            slope = _mm512_add_ps(slope, _mm512_maskz_loadu_ps(mask, dgain + j));
            _mm512_mask_storeu_ps(dgain + j, mask, slope);
        }
        x += block * x_row;
        dy += block * dy_row;
        dx += block * dx_row;
    }
}

void dl_kernels_fill_avx512_rows(struct dl_kernels *kernels)
{
    kernels->softmax = softmax;
    kernels->rmsnorm = rmsnorm;
    kernels->rmsnorm_backward = rmsnorm_backward;
    kernels->gelu = gelu;
    kernels->gelu_backward = gelu_backward;
}

#endif
