/* Kernels for AArch64's Advanced SIMD. A tail shorter than a vector goes through
 * a small buffer and the same arithmetic, so an element's value does not depend
 * on where it stands. What is not here keeps the plain C version, which the
 * compiler turns into vectors as it is. */
#if defined(__aarch64__)

#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "model/kernels/kernels.h"

#define LANES 4
#define VECTORS 4  /* of a panel */
#define ROWS_MAX 6 /* 6 × 16: 24 accumulators, four of B, one of A in 32 registers */
#define INLINE static inline __attribute__((always_inline))

/* The first `count` lanes, 1..4, the rest zeros. */
INLINE float32x4_t load_part(const float *x, size_t count)
{
    float all[LANES] = {0};
    memcpy(all, x, count * sizeof *x);
    return vld1q_f32(all);
}

INLINE void store_part(float *x, size_t count, float32x4_t value)
{
    float all[LANES];
    vst1q_f32(all, value);
    memcpy(x, all, count * sizeof *x);
}

/* Whole vectors, or the tail of `n` from `i` on. */
INLINE float32x4_t load_at(const float *x, size_t i, size_t n)
{
    return n - i >= LANES ? vld1q_f32(x + i) : load_part(x + i, n - i);
}

INLINE void store_at(float *x, size_t i, size_t n, float32x4_t value)
{
    if (n - i >= LANES)
        vst1q_f32(x + i, value);
    else
        store_part(x + i, n - i, value);
}

INLINE float32x4_t all(float x)
{
    return vdupq_n_f32(x);
}

/* ---- matrix product -------------------------------------------------------- */

/* One tile of `rows` × `columns`, of which `vectors` hold some; `rows` and
 * `vectors` are constants at every call, and so is columns = 16 at most of them. */
INLINE void tile(const struct dl_gemm *g, const float *a, const float *b, float *c,
                 const float *bias, const int rows, const int vectors, size_t columns)
{
    float32x4_t sum[ROWS_MAX][VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        float32x4_t start = bias ? load_at(bias, (size_t)v * LANES, columns) : all(0);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) sum[i][v] = start;
    }
    const size_t a_row = g->a_row, a_column = g->a_column, b_row = g->b_row;
    for (size_t p = g->k; p > 0; p--) {
        float32x4_t bv[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) bv[v] = load_at(b, (size_t)v * LANES, columns);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            const float x = a[(size_t)i * a_row];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) sum[i][v] = vfmaq_n_f32(sum[i][v], bv[v], x);
        }
        a += a_column;
        b += b_row;
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        float *to = c + (size_t)i * g->c_row;
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            if (g->accumulate)
                sum[i][v] = vaddq_f32(load_at(to, (size_t)v * LANES, columns), sum[i][v]);
            store_at(to, (size_t)v * LANES, columns, sum[i][v]);
        }
    }
}

INLINE void tile_columns(const struct dl_gemm *g, const float *a, const float *b, float *c,
                         const float *bias, const int rows, size_t columns)
{
    if (columns == DL_PANEL)
        tile(g, a, b, c, bias, rows, 4, DL_PANEL);
    else if (columns > 3 * LANES)
        tile(g, a, b, c, bias, rows, 4, columns);
    else if (columns > 2 * LANES)
        tile(g, a, b, c, bias, rows, 3, columns);
    else if (columns > LANES)
        tile(g, a, b, c, bias, rows, 2, columns);
    else
        tile(g, a, b, c, bias, rows, 1, columns);
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
            const size_t columns = g->n - j < DL_PANEL ? g->n - j : DL_PANEL;
            size_t i = i0;
            for (; i + ROWS_MAX <= end; i += ROWS_MAX)
                tile_columns(g, g->a + i * g->a_row, b, g->c + i * g->c_row + j, bias, ROWS_MAX,
                             columns);
            for (; i + 2 <= end; i += 2)
                tile_columns(g, g->a + i * g->a_row, b, g->c + i * g->c_row + j, bias, 2, columns);
            if (i < end)
                tile_columns(g, g->a + i * g->a_row, b, g->c + i * g->c_row + j, bias, 1, columns);
        }
    }
}

/* ---- elementary functions --------------------------------------------------- */

INLINE float32x4_t scaled(float32x4_t y, float32x4_t n) /* y · 2^n, n whole */
{
    int32x4_t exponent = vshlq_n_s32(vcvtq_s32_f32(n), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(y), exponent));
}

/* 2^t for −126 ≤ t ≤ 127: n + f with |f| ≤ 1/2, and 2^f = 1 + f q(f), the best q
 * of degree 4 (within 1.1e-7, and exact at 0). */
INLINE float32x4_t exp2_within(float32x4_t t)
{
    float32x4_t n = vrndnq_f32(t), f = vsubq_f32(t, n);
    float32x4_t y = all(1.32647273e-3f);
    y = vfmaq_f32(all(9.67151299e-3f), y, f);
    y = vfmaq_f32(all(5.55073358e-2f), y, f);
    y = vfmaq_f32(all(2.40222424e-1f), y, f);
    y = vfmaq_f32(all(6.93147004e-1f), y, f);
    return scaled(vfmaq_f32(all(1.0f), y, f), n);
}

/* e^x = 2^n e^r with |r| ≤ ln2/2; the series to r⁷ leaves 5e-9. ln 2 in two
 * parts keeps large x exact. A NaN stays one. */
static void exponential(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i += LANES) {
        float32x4_t v = vminq_f32(vmaxq_f32(load_at(x, i, n), all(-87.0f)), all(88.0f));
        float32x4_t whole = vrndnq_f32(vmulq_f32(v, all(1.44269504f)));
        float32x4_t r = vfmsq_f32(v, whole, all(0.693145752f));
        r = vfmsq_f32(r, whole, all(1.42860682e-6f));
        float32x4_t e = all(1.0f / 5040);
        e = vfmaq_f32(all(1.0f / 720), e, r);
        e = vfmaq_f32(all(1.0f / 120), e, r);
        e = vfmaq_f32(all(1.0f / 24), e, r);
        e = vfmaq_f32(all(1.0f / 6), e, r);
        e = vfmaq_f32(all(0.5f), e, r);
        e = vfmaq_f32(all(1.0f), e, r);
        store_at(y, i, n, scaled(vfmaq_f32(all(1.0f), e, r), whole));
    }
}

/* x = k·π/2 + r with |r| ≤ π/4; k mod 4 picks and signs the two series. π/2 in
 * three parts, the first two short enough that k times them is exact. */
static void cos_sin(size_t n, const float *x, float *c, float *s)
{
    const int32x4_t bit = vdupq_n_s32(2);
    for (size_t i = 0; i < n; i += LANES) {
        float32x4_t v = load_at(x, i, n), k = vrndnq_f32(vmulq_f32(v, all(0.636619772f)));
        float32x4_t r = vfmsq_f32(v, k, all(1.5703125f));
        r = vfmsq_f32(r, k, all(4.837512969970703125e-4f));
        r = vfmsq_f32(r, k, all(7.5497899548918821e-8f));
        float32x4_t q = vmulq_f32(r, r), sine = all(1.0f / 362880), cosine = all(-1.0f / 3628800);
        sine = vfmaq_f32(all(-1.0f / 5040), sine, q);
        sine = vfmaq_f32(all(1.0f / 120), sine, q);
        sine = vfmaq_f32(all(-1.0f / 6), sine, q);
        sine = vfmaq_f32(r, vmulq_f32(sine, q), r);
        cosine = vfmaq_f32(all(1.0f / 40320), cosine, q);
        cosine = vfmaq_f32(all(-1.0f / 720), cosine, q);
        cosine = vfmaq_f32(all(1.0f / 24), cosine, q);
        cosine = vfmaq_f32(all(-0.5f), cosine, q);
        cosine = vfmaq_f32(all(1.0f), cosine, q);
        int32x4_t quarter = vcvtq_s32_f32(k);
        /* Odd quarters swap the two; bit 1 of k flips sine, of k + 1 cosine. */
        uint32x4_t odd = vtstq_s32(quarter, vdupq_n_s32(1));
        int32x4_t flip_s = vshlq_n_s32(vandq_s32(quarter, bit), 30);
        int32x4_t flip_c = vshlq_n_s32(vandq_s32(vaddq_s32(quarter, vdupq_n_s32(1)), bit), 30);
        int32x4_t out_c = vreinterpretq_s32_f32(vbslq_f32(odd, sine, cosine));
        int32x4_t out_s = vreinterpretq_s32_f32(vbslq_f32(odd, cosine, sine));
        store_at(c, i, n, vreinterpretq_f32_s32(veorq_s32(out_c, flip_c)));
        if (s) store_at(s, i, n, vreinterpretq_f32_s32(veorq_s32(out_s, flip_s)));
    }
}

/* σ(2u) of the tanh form of GELU: 1/(1 + 2^t), t = −2u log2 e. */
INLINE float32x4_t gelu_gate(float32x4_t x)
{
    float32x4_t t = vfmaq_f32(all(-2.30220820f), vmulq_f32(x, x), all(-1.02943240e-1f));
    t = vminq_f32(vmaxq_f32(vmulq_f32(t, x), all(-126.0f)), all(126.0f));
    return vdivq_f32(all(1.0f), vaddq_f32(all(1.0f), exp2_within(t)));
}

static void gelu(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i += LANES) {
        float32x4_t v = load_at(x, i, n);
        store_at(y, i, n, vmulq_f32(v, gelu_gate(v)));
    }
}

static void gelu_backward(size_t n, const float *x, const float *dy, float *dx)
{
    for (size_t i = 0; i < n; i += LANES) {
        float32x4_t v = load_at(x, i, n), s = gelu_gate(v);
        float32x4_t slope =
            vfmaq_f32(all(1.59576912f), vmulq_f32(v, v), all(1.59576912f * 3 * 0.044715f));
        float32x4_t rest = vmulq_f32(vmulq_f32(v, s), vmulq_f32(vsubq_f32(all(1.0f), s), slope));
        store_at(dx, i, n, vmulq_f32(load_at(dy, i, n), vaddq_f32(s, rest)));
    }
}

/* ---- columns and rows --------------------------------------------------------- */

static void softmax(size_t n, size_t columns, float scale, float *x, size_t row)
{
    const float32x4_t factor = all(scale * 1.44269504f);
    for (size_t j = 0; j < columns && n > 0; j += LANES, x += LANES) {
        float32x4_t top = all(-INFINITY), sum = all(0);
        for (size_t i = 0; i < n; i++) top = vmaxq_f32(top, vld1q_f32(x + i * row));
        for (size_t i = 0; i < n; i++) {
            float32x4_t t = vmulq_f32(vsubq_f32(vld1q_f32(x + i * row), top), factor);
            float32x4_t e = exp2_within(vmaxq_f32(all(-126.0f), t));
            vst1q_f32(x + i * row, e);
            sum = vaddq_f32(sum, e);
        }
        vst1q_f32(x + n * row, vdivq_f32(all(1.0f), sum));
    }
}

static float softmax_backward(size_t n, size_t columns, float scale, const float *a,
                              const float *da, float *ds, size_t row)
{
    float total = 0;
    for (size_t j = 0; j < columns && n > 0; j += LANES, a += LANES, da += LANES, ds += LANES) {
        const float32x4_t share = vld1q_f32(a + n * row), slope = vmulq_f32(all(scale), share);
        float32x4_t dot = all(0);
        float dots[LANES];
        for (size_t i = 0; i < n; i++)
            dot = vfmaq_f32(dot, vld1q_f32(a + i * row), vld1q_f32(da + i * row));
        dot = vmulq_f32(dot, share);
        vst1q_f32(dots, dot);
        for (size_t l = 0; l < LANES && j + l < columns; l++) total += dots[l];
        for (size_t i = 0; i < n; i++) {
            float32x4_t d = vsubq_f32(vld1q_f32(da + i * row), dot);
            vst1q_f32(ds + i * row, vmulq_f32(vmulq_f32(slope, vld1q_f32(a + i * row)), d));
        }
    }
    return total;
}

static void rmsnorm(size_t rows, size_t n, const float *x, size_t x_row, const float *gain,
                    float scale, float *y, size_t y_row, float *inverse)
{
    for (size_t i = 0; i < rows; i++, x += x_row, y += y_row) {
        float32x4_t sum = all(0);
        for (size_t j = 0; j < n; j += LANES) {
            float32x4_t v = load_at(x, j, n);
            sum = vfmaq_f32(sum, v, v);
        }
        const float r = 1.0f / sqrtf(vaddvq_f32(sum) / (float)n + DL_RMSNORM_EPSILON);
        for (size_t j = 0; j < n; j += LANES) {
            float32x4_t v = vmulq_f32(load_at(x, j, n), all(r * scale));
            store_at(y, j, n, gain ? vmulq_f32(v, load_at(gain, j, n)) : v);
        }
        if (inverse) inverse[i] = r;
    }
}

static void rmsnorm_backward(size_t rows, size_t n, const float *x, size_t x_row, const float *gain,
                             float scale, const float *inverse, const float *dy, size_t dy_row,
                             float *dx, size_t dx_row, int accumulate, float *dgain)
{
    for (size_t i = 0; i < rows; i++, x += x_row, dy += dy_row, dx += dx_row) {
        const float r = inverse[i];
        float32x4_t sum = all(0);
        for (size_t j = 0; j < n; j += LANES) {
            float32x4_t v = vmulq_f32(load_at(dy, j, n), load_at(x, j, n));
            sum = gain ? vfmaq_f32(sum, v, load_at(gain, j, n)) : vaddq_f32(sum, v);
        }
        const float32x4_t back = all(vaddvq_f32(sum) * scale / (float)n * r * r * r);
        for (size_t j = 0; j < n; j += LANES) {
            float32x4_t v = load_at(x, j, n), d = vmulq_f32(load_at(dy, j, n), all(scale * r));
            if (dgain) store_at(dgain, j, n, vfmaq_f32(load_at(dgain, j, n), d, v));
            if (gain) d = vmulq_f32(d, load_at(gain, j, n));
            d = vfmsq_f32(d, back, v);
            store_at(dx, j, n, accumulate ? vaddq_f32(d, load_at(dx, j, n)) : d);
        }
    }
}

void dl_kernels_fill_neon(struct dl_kernels *kernels)
{
    kernels->name = "neon";
    kernels->gemm = gemm;
    kernels->softmax = softmax;
    kernels->softmax_backward = softmax_backward;
    kernels->rmsnorm = rmsnorm;
    kernels->rmsnorm_backward = rmsnorm_backward;
    kernels->gelu = gelu;
    kernels->gelu_backward = gelu_backward;
    kernels->exp = exponential;
    kernels->cos_sin = cos_sin;
}

#endif
