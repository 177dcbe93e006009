/* Element-wise kernels for AVX2 with FMA. */
#if defined(__x86_64__)

#include <math.h>

#include "model/kernels/kernels_avx2.h"

INLINE float sum_of(__m256 x)
{
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_shuffle_ps(y, y, 1)));
}

/* ---- elementary functions --------------------------------------------------- */

/* 2^t for −126 ≤ t ≤ 127: n + f with |f| ≤ 1/2, and 2^f = 1 + f q(f), the best q
 * of degree 4 (within 1.1e-7, and exact at 0). */
INLINE __m256 exp2_within(__m256 t)
{
    __m256 n = _mm256_round_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 f = _mm256_sub_ps(t, n);
    __m256 y = _mm256_set1_ps(1.32647273e-3f);
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(9.67151299e-3f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(5.55073358e-2f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(2.40222424e-1f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(6.93147004e-1f));
    y = _mm256_fmadd_ps(y, f, _mm256_set1_ps(1.0f));
    __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), exponent));
}

/* e^x = 2^n e^r with |r| ≤ ln2/2; the series to r⁷ leaves 5e-9. ln 2 in two
 * parts keeps large x exact, where 2^(x log2 e) would lose their last bits. */
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

INLINE void exp_at(const float *x, float *y, const int masked, __m256i mask)
{
    store(y, masked, mask, exp8(load(x, masked, mask)));
}

static void exponential(size_t n, const float *x, float *y)
{
    const size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES) exp_at(x + i, y + i, 0, _mm256_setzero_si256());
    if (whole < n) exp_at(x + whole, y + whole, 1, mask_of(n - whole));
}

/* x = k·π/2 + r with |r| ≤ π/4; k mod 4 picks and signs the two series. π/2 in
 * three parts, the first two short enough that k times them is exact. */
INLINE void cos_sin_at(const float *x, float *c, float *s, const int masked, __m256i mask)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 v = load(x, masked, mask);
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
    store(c, masked, mask, _mm256_xor_ps(_mm256_blendv_ps(cosine, sine, odd), flip_c));
    if (s) store(s, masked, mask, _mm256_xor_ps(_mm256_blendv_ps(sine, cosine, odd), flip_s));
}

static void cos_sin(size_t n, const float *x, float *c, float *s)
{
    const size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        cos_sin_at(x + i, c + i, s ? s + i : NULL, 0, _mm256_setzero_si256());
    if (whole < n) cos_sin_at(x + whole, c + whole, s ? s + whole : NULL, 1, mask_of(n - whole));
}

/* σ(2u) of the tanh form of GELU: 1/(1 + 2^t), t = −2u log2 e. */
INLINE __m256 gelu_gate(__m256 x)
{
    __m256 t = _mm256_fmadd_ps(_mm256_mul_ps(x, x), _mm256_set1_ps(-1.02943240e-1f),
                               _mm256_set1_ps(-2.30220820f));
    t = _mm256_mul_ps(t, x);
    t = _mm256_min_ps(_mm256_set1_ps(126.0f), _mm256_max_ps(_mm256_set1_ps(-126.0f), t));
    return _mm256_div_ps(_mm256_set1_ps(1.0f), _mm256_add_ps(_mm256_set1_ps(1.0f), exp2_within(t)));
}

INLINE void gelu_at(const float *x, float *y, const int masked, __m256i mask)
{
    __m256 v = load(x, masked, mask);
    store(y, masked, mask, _mm256_mul_ps(v, gelu_gate(v)));
}

static void gelu(size_t n, const float *x, float *y)
{
    const size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES) gelu_at(x + i, y + i, 0, _mm256_setzero_si256());
    if (whole < n) gelu_at(x + whole, y + whole, 1, mask_of(n - whole));
}

INLINE void gelu_backward_at(const float *x, const float *dy, float *dx, const int masked,
                             __m256i mask)
{
    __m256 v = load(x, masked, mask), s = gelu_gate(v);
    __m256 slope = _mm256_fmadd_ps(_mm256_mul_ps(v, v), _mm256_set1_ps(1.59576912f * 3 * 0.044715f),
                                   _mm256_set1_ps(1.59576912f));
    __m256 rest = _mm256_mul_ps(_mm256_mul_ps(v, s),
                                _mm256_mul_ps(_mm256_sub_ps(_mm256_set1_ps(1.0f), s), slope));
    store(dx, masked, mask, _mm256_mul_ps(load(dy, masked, mask), _mm256_add_ps(s, rest)));
}

static void gelu_backward(size_t n, const float *x, const float *dy, float *dx)
{
    const size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        gelu_backward_at(x + i, dy + i, dx + i, 0, _mm256_setzero_si256());
    if (whole < n) gelu_backward_at(x + whole, dy + whole, dx + whole, 1, mask_of(n - whole));
}

/* ---- rows ------------------------------------------------------------------- */

/* 2^((x − top) scale log2 e); x ≤ top. */
INLINE __m256 softmax_term(__m256 x, __m256 top, __m256 factor)
{
    __m256 t = _mm256_mul_ps(_mm256_sub_ps(x, top), factor);
    return exp2_within(_mm256_max_ps(_mm256_set1_ps(-126.0f), t));
}

static void softmax(size_t n, size_t columns, float scale, float *x, size_t row)
{
    const __m256 factor = _mm256_set1_ps(scale * 1.44269504f);
    for (size_t j = 0; j < columns && n > 0; j += LANES, x += LANES) {
        __m256 top = _mm256_set1_ps(-INFINITY), sum = _mm256_setzero_ps();
        for (size_t i = 0; i < n; i++) top = _mm256_max_ps(top, _mm256_loadu_ps(x + i * row));
        for (size_t i = 0; i < n; i++) {
            __m256 e = softmax_term(_mm256_loadu_ps(x + i * row), top, factor);
            _mm256_storeu_ps(x + i * row, e);
            sum = _mm256_add_ps(sum, e);
        }
        _mm256_storeu_ps(x + n * row, _mm256_div_ps(_mm256_set1_ps(1.0f), sum));
    }
}

static void difference(size_t n, size_t columns, float lambda, const float *a1, const float *a2,
                       float *out, size_t row)
{
    for (size_t j = 0; j < columns; j += LANES, a1 += LANES, out += LANES) {
        const __m256i mask = mask_of(columns - j);
        const __m256 share1 = _mm256_maskload_ps(a1 + n * row, mask);
        __m256 share2 = _mm256_setzero_ps();
        if (a2) {
            share2 =
                _mm256_mul_ps(_mm256_set1_ps(lambda), _mm256_maskload_ps(a2 + j + n * row, mask));
            for (size_t i = 0; i < n * row; i += row) {
                __m256 second = _mm256_mul_ps(_mm256_loadu_ps(a2 + j + i), share2);
                _mm256_storeu_ps(out + i, _mm256_fmsub_ps(_mm256_loadu_ps(a1 + i), share1, second));
            }
        } else {
            for (size_t i = 0; i < n * row; i += row)
                _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(a1 + i), share1));
        }
    }
}

static float softmax_backward(size_t n, size_t columns, float scale, const float *a,
                              const float *da, float *ds, size_t row)
{
    const __m256 factor = _mm256_set1_ps(scale);
    __m256 total = _mm256_setzero_ps();
    for (size_t j = 0; j < columns; j += LANES, a += LANES, da += LANES, ds += LANES) {
        __m256 dot = _mm256_setzero_ps();
        for (size_t i = 0; i < n; i++)
            dot = _mm256_fmadd_ps(_mm256_loadu_ps(a + i * row), _mm256_loadu_ps(da + i * row), dot);
        if (n == 0) continue;
        const __m256 share = _mm256_loadu_ps(a + n * row);
        const __m256 slope = _mm256_mul_ps(factor, share);
        dot = _mm256_mul_ps(dot, share);
        total = _mm256_add_ps(total, _mm256_and_ps(dot, _mm256_castsi256_ps(mask_of(columns - j))));
        for (size_t i = 0; i < n; i++) {
            __m256 d = _mm256_sub_ps(_mm256_loadu_ps(da + i * row), dot);
            __m256 v = _mm256_mul_ps(slope, _mm256_loadu_ps(a + i * row));
            _mm256_storeu_ps(ds + i * row, _mm256_mul_ps(v, d));
        }
    }
    return sum_of(total);
}

/* 1/√(mean square + ε) of up to eight rows: one root and one division for all.
 * The last row stands in for those that are missing. */
INLINE __m256 rms_factors(size_t rows, size_t n, const float *x, size_t x_row)
{
    const size_t whole = n / LANES * LANES;
    const __m256i mask = mask_of(n - whole);
    const float *from[LANES];
    __m256 sum[LANES];
#pragma GCC unroll 8
    for (size_t i = 0; i < LANES; i++) {
        from[i] = x + (i < rows ? i : rows - 1) * x_row;
        sum[i] = _mm256_setzero_ps();
    }
    for (size_t j = 0; j < whole; j += LANES) {
#pragma GCC unroll 8
        for (size_t i = 0; i < LANES; i++) {
            __m256 v = _mm256_loadu_ps(from[i] + j);
            sum[i] = _mm256_fmadd_ps(v, v, sum[i]);
        }
    }
    for (size_t i = 0; i < LANES && whole < n; i++) {
        __m256 v = _mm256_maskload_ps(from[i] + whole, mask);
        sum[i] = _mm256_fmadd_ps(v, v, sum[i]);
    }
    transpose(sum);
    __m256 all =
        _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(sum[0], sum[4]), _mm256_add_ps(sum[2], sum[6])),
                      _mm256_add_ps(_mm256_add_ps(sum[1], sum[5]), _mm256_add_ps(sum[3], sum[7])));
    __m256 mean = _mm256_div_ps(all, _mm256_set1_ps((float)n));
    mean = _mm256_add_ps(mean, _mm256_set1_ps(DL_RMSNORM_EPSILON));
    return _mm256_div_ps(_mm256_set1_ps(1.0f), _mm256_sqrt_ps(mean));
}

static void rmsnorm(size_t rows, size_t n, const float *x, size_t x_row, const float *gain,
                    float scale, float *y, size_t y_row, float *inverse)
{
    const size_t whole = n / LANES * LANES;
    const __m256i mask = mask_of(n - whole);
    for (size_t first = 0; first < rows; first += LANES) {
        const size_t count = rows - first < LANES ? rows - first : LANES;
        float r[LANES];
        _mm256_storeu_ps(r, rms_factors(count, n, x, x_row));
        for (size_t i = 0; i < count; i++, x += x_row, y += y_row) {
            const __m256 factor = _mm256_set1_ps(r[i] * scale);
            for (size_t j = 0; j < whole; j += LANES) {
                __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + j), factor);
                if (gain) v = _mm256_mul_ps(v, _mm256_loadu_ps(gain + j));
                _mm256_storeu_ps(y + j, v);
            }
            if (whole < n) {
                __m256 v = _mm256_mul_ps(_mm256_maskload_ps(x + whole, mask), factor);
                if (gain) v = _mm256_mul_ps(v, _mm256_maskload_ps(gain + whole, mask));
                _mm256_maskstore_ps(y + whole, mask, v);
            }
            if (inverse) inverse[first + i] = r[i];
        }
    }
}

INLINE void rmsnorm_backward_at(const float *x, const float *gain, const float *dy, float *dx,
                                float *dgain, __m256 factor, __m256 back, int accumulate,
                                const int masked, __m256i mask)
{
    __m256 v = load(x, masked, mask), d = _mm256_mul_ps(load(dy, masked, mask), factor);
    if (dgain) store(dgain, masked, mask, _mm256_fmadd_ps(d, v, load(dgain, masked, mask)));
    if (gain) d = _mm256_mul_ps(d, load(gain, masked, mask));
    d = _mm256_fnmadd_ps(back, v, d);
    if (accumulate) d = _mm256_add_ps(d, load(dx, masked, mask));
    store(dx, masked, mask, d);
}

static void rmsnorm_backward(size_t rows, size_t n, const float *x, size_t x_row, const float *gain,
                             float scale, const float *inverse, const float *dy, size_t dy_row,
                             float *dx, size_t dx_row, int accumulate, float *dgain)
{
    const size_t whole = n / LANES * LANES;
    const __m256i mask = mask_of(n - whole), none = _mm256_setzero_si256();
    for (size_t i = 0; i < rows; i++, x += x_row, dy += dy_row, dx += dx_row) {
        float r = inverse[i];
        __m256 sum = _mm256_setzero_ps();
        for (size_t j = 0; j < whole; j += LANES) {
            __m256 v = _mm256_mul_ps(_mm256_loadu_ps(dy + j), _mm256_loadu_ps(x + j));
            sum = gain ? _mm256_fmadd_ps(v, _mm256_loadu_ps(gain + j), sum) : _mm256_add_ps(sum, v);
        }
        if (whole < n) {
            __m256 v = _mm256_mul_ps(load(dy + whole, 1, mask), load(x + whole, 1, mask));
            sum =
                gain ? _mm256_fmadd_ps(v, load(gain + whole, 1, mask), sum) : _mm256_add_ps(sum, v);
        }
        __m256 back = _mm256_set1_ps(sum_of(sum) * scale / (float)n * r * r * r);
        __m256 factor = _mm256_set1_ps(scale * r);
        for (size_t j = 0; j < whole; j += LANES)
            rmsnorm_backward_at(x + j, gain ? gain + j : NULL, dy + j, dx + j,
                                dgain ? dgain + j : NULL, factor, back, accumulate, 0, none);
        if (whole < n)
            rmsnorm_backward_at(x + whole, gain ? gain + whole : NULL, dy + whole, dx + whole,
                                dgain ? dgain + whole : NULL, factor, back, accumulate, 1, mask);
    }
}

/* Lanes j of all heads of a row. */
INLINE void rotate_at(size_t heads, size_t h, float *low, const float *cosine, const float *sine,
                      __m256 flip, const int masked, __m256i mask)
{
    __m256 c = load(cosine, masked, mask), s = _mm256_xor_ps(load(sine, masked, mask), flip);
    for (size_t head = 0; head < heads; head++, low += 2 * h) {
        __m256 a = load(low, masked, mask), b = load(low + h, masked, mask);
        store(low, masked, mask, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
        store(low + h, masked, mask, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
    }
}

static void rotate(size_t rows, size_t heads, size_t h, float *x, size_t x_row,
                   const uint32_t *position, const float *cosine, const float *sine, int sign)
{
    const size_t whole = h / LANES * LANES;
    const __m256i mask = mask_of(h - whole);
    const __m256 flip = _mm256_set1_ps(sign < 0 ? -0.0f : 0.0f);
    for (size_t i = 0; i < rows; i++, x += x_row) {
        const float *c = cosine + position[i] * h, *s = sine + position[i] * h;
        for (size_t j = 0; j < whole; j += LANES)
            rotate_at(heads, h, x + j, c + j, s + j, flip, 0, mask);
        if (whole < h) rotate_at(heads, h, x + whole, c + whole, s + whole, flip, 1, mask);
    }
}

INLINE void dropout_at(__m256i index, __m256i limit, __m256 scale, float *x, const int masked,
                       __m256i mask)
{
    __m256i h = _mm256_xor_si256(index, _mm256_srli_epi32(index, 16));
    h = _mm256_mullo_epi32(h, _mm256_set1_epi32(0x7feb352d));
    h = _mm256_xor_si256(h, _mm256_srli_epi32(h, 15));
    h = _mm256_mullo_epi32(h, _mm256_set1_epi32((int)0x846ca68bu));
    h = _mm256_xor_si256(h, _mm256_srli_epi32(h, 16));
    __m256 drop = _mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, _mm256_srli_epi32(h, 16)));
    store(x, masked, mask, _mm256_andnot_ps(drop, _mm256_mul_ps(load(x, masked, mask), scale)));
}

static void dropout(size_t n, uint32_t key, uint32_t limit, float scale, float *x)
{
    const size_t whole = n / LANES * LANES;
    const __m256i bound = _mm256_set1_epi32((int)limit), step = _mm256_set1_epi32(LANES);
    const __m256 factor = _mm256_set1_ps(scale);
    __m256i index =
        _mm256_add_epi32(_mm256_set1_epi32((int)key), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    for (size_t i = 0; i < whole; i += LANES, index = _mm256_add_epi32(index, step))
        dropout_at(index, bound, factor, x + i, 0, step);
    if (whole < n) dropout_at(index, bound, factor, x + whole, 1, mask_of(n - whole));
}

static void add(size_t n, const float *x, float *y)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    for (; i < n; i++) y[i] += x[i];
}

INLINE void column_sums_at(size_t rows, const float *x, size_t x_row, float *sums, const int masked,
                           __m256i mask)
{
    __m256 sum = _mm256_setzero_ps();
    for (size_t i = 0; i < rows; i++) sum = _mm256_add_ps(sum, load(x + i * x_row, masked, mask));
    store(sums, masked, mask, _mm256_add_ps(load(sums, masked, mask), sum));
}

static void column_sums(size_t rows, size_t n, const float *x, size_t x_row, float *sums)
{
    const size_t whole = n / LANES * LANES;
    for (size_t j = 0; j < whole; j += LANES)
        column_sums_at(rows, x + j, x_row, sums + j, 0, _mm256_setzero_si256());
    if (whole < n) column_sums_at(rows, x + whole, x_row, sums + whole, 1, mask_of(n - whole));
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

INLINE void adamw_at(const struct dl_adamw_step *t, const float *gradient, float *m, float *v,
                     float *x, const int masked, __m256i mask)
{
    __m256 g = _mm256_mul_ps(load(gradient, masked, mask), _mm256_set1_ps(t->scale));
    __m256 first = _mm256_mul_ps(_mm256_set1_ps(t->beta1), load(m, masked, mask));
    first = _mm256_add_ps(first, _mm256_mul_ps(_mm256_set1_ps(1 - t->beta1), g));
    __m256 second = _mm256_mul_ps(_mm256_set1_ps(t->beta2), load(v, masked, mask));
    second =
        _mm256_add_ps(second, _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(1 - t->beta2), g), g));
    __m256 root = _mm256_sqrt_ps(_mm256_div_ps(second, _mm256_set1_ps(t->correction2)));
    root = _mm256_add_ps(root, _mm256_set1_ps(t->epsilon));
    __m256 move = _mm256_div_ps(first, _mm256_set1_ps(t->correction1));
    move = _mm256_div_ps(_mm256_mul_ps(_mm256_set1_ps(t->rate), move), root);
    __m256 kept = _mm256_mul_ps(load(x, masked, mask), _mm256_set1_ps(1 - t->rate * t->decay));
    store(m, masked, mask, first);
    store(v, masked, mask, second);
    store(x, masked, mask, _mm256_sub_ps(kept, move));
}

static void adamw(size_t n, const struct dl_adamw_step *step, const float *gradient, float *m,
                  float *v, float *x)
{
    const size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        adamw_at(step, gradient + i, m + i, v + i, x + i, 0, _mm256_setzero_si256());
    if (whole < n)
        adamw_at(step, gradient + whole, m + whole, v + whole, x + whole, 1, mask_of(n - whole));
}

void dl_kernels_fill_avx2_rows(struct dl_kernels *kernels)
{
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
    kernels->dropout = dropout;
    kernels->add = add;
    kernels->column_sums = column_sums;
    kernels->square_sum = square_sum;
    kernels->adamw = adamw;
}

#endif
