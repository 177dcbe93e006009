/* Plain C kernels: the reference that every other tier is held to, and the
 * double-precision build's only tier. */
#include <math.h>
#include <string.h>

#include "model/kernels/kernels.h"

static void gemm(const struct dl_gemm *g)
{
    for (size_t j0 = 0; j0 < g->n; j0 += DL_PANEL) {
        const dl_real *panel = g->b + j0 / DL_PANEL * g->b_panel;
        size_t columns = g->n - j0 < DL_PANEL ? g->n - j0 : DL_PANEL;
        for (size_t i = 0; i < g->m; i++) {
            dl_real sum[DL_PANEL] = {0};
            const dl_real *a = g->a + i * g->a_row;
            dl_real *c = g->c + i * g->c_row + j0;
            if (g->bias != NULL)
                for (size_t j = 0; j < columns; j++) sum[j] = g->bias[j0 + j];
            if (columns == DL_PANEL) {
                for (size_t p = 0; p < g->k; p++) {
                    dl_real x = a[p * g->a_column];
                    const dl_real *b = panel + p * g->b_row;
                    for (size_t j = 0; j < DL_PANEL; j++) sum[j] += x * b[j];
                }
            } else {
                for (size_t p = 0; p < g->k; p++) {
                    dl_real x = a[p * g->a_column];
                    const dl_real *b = panel + p * g->b_row;
                    for (size_t j = 0; j < columns; j++) sum[j] += x * b[j];
                }
            }
            if (g->accumulate)
                for (size_t j = 0; j < columns; j++) c[j] += sum[j];
            else
                for (size_t j = 0; j < columns; j++) c[j] = sum[j];
        }
    }
}

static void pack_rows(size_t k, size_t n, const dl_real *source, size_t row, dl_real *packed)
{
    for (size_t j0 = 0; j0 < n; j0 += DL_PANEL) {
        size_t columns = n - j0 < DL_PANEL ? n - j0 : DL_PANEL;
        for (size_t p = 0; p < k; p++) {
            size_t j = 0;
            for (; j < columns; j++) packed[j] = source[p * row + j0 + j];
            for (; j < DL_PANEL; j++) packed[j] = 0;
            packed += DL_PANEL;
        }
    }
}

static void pack_transposed(size_t k, size_t n, const dl_real *source, size_t row, dl_real *packed)
{
    for (size_t j0 = 0; j0 < n; j0 += DL_PANEL) {
        size_t columns = n - j0 < DL_PANEL ? n - j0 : DL_PANEL;
        for (size_t p = 0; p < k; p++) {
            size_t j = 0;
            for (; j < columns; j++) packed[j] = source[(j0 + j) * row + p];
            for (; j < DL_PANEL; j++) packed[j] = 0;
            packed += DL_PANEL;
        }
    }
}

static void softmax(size_t n, size_t columns, dl_real scale, dl_real *x, size_t row)
{
    for (size_t j = 0; j < columns && n > 0; j++) {
        dl_real *at = x + j, top = at[0], sum = 0;
        for (size_t i = 1; i < n; i++) top = at[i * row] > top ? at[i * row] : top;
        for (size_t i = 0; i < n; i++) {
            at[i * row] = DL_REAL_FN(exp)(scale * (at[i * row] - top));
            sum += at[i * row];
        }
        at[n * row] = 1 / sum;
    }
}

static void difference(size_t n, size_t columns, dl_real lambda, const dl_real *a1,
                       const dl_real *a2, dl_real *out, size_t row)
{
    const dl_real *share1 = a1 + n * row, *share2 = a2 ? a2 + n * row : NULL;
    for (size_t i = 0; i < n * row; i += row)
        for (size_t j = 0; j < columns; j++)
            out[i + j] = a1[i + j] * share1[j] - (a2 ? a2[i + j] * (lambda * share2[j]) : 0);
}

static dl_real softmax_backward(size_t n, size_t columns, dl_real scale, const dl_real *a,
                                const dl_real *da, dl_real *ds, size_t row)
{
    dl_real total = 0;
    for (size_t j = 0; j < columns; j++) {
        dl_real dot = 0, share = n > 0 ? a[n * row + j] : 0;
        for (size_t i = j; i < n * row; i += row) dot += a[i] * da[i];
        dot *= share;
        for (size_t i = j; i < n * row; i += row) ds[i] = scale * share * a[i] * (da[i] - dot);
        total += dot;
    }
    return total;
}

static void rmsnorm(size_t rows, size_t n, const dl_real *x, size_t x_row, const dl_real *gain,
                    dl_real scale, dl_real *y, size_t y_row, dl_real *inverse)
{
    for (size_t i = 0; i < rows; i++, x += x_row, y += y_row) {
        dl_real sum = 0;
        for (size_t j = 0; j < n; j++) sum += x[j] * x[j];
        dl_real r = 1 / DL_REAL_FN(sqrt)(sum / (dl_real)n + DL_RMSNORM_EPSILON);
        for (size_t j = 0; j < n; j++) y[j] = x[j] * (r * scale) * (gain ? gain[j] : 1);
        if (inverse) inverse[i] = r;
    }
}

static void rmsnorm_backward(size_t rows, size_t n, const dl_real *x, size_t x_row,
                             const dl_real *gain, dl_real scale, const dl_real *inverse,
                             const dl_real *dy, size_t dy_row, dl_real *dx, size_t dx_row,
                             int accumulate, dl_real *dgain)
{
    for (size_t i = 0; i < rows; i++, x += x_row, dy += dy_row, dx += dx_row) {
        dl_real r = inverse[i], dot = 0;
        for (size_t j = 0; j < n; j++) dot += dy[j] * (gain ? gain[j] : 1) * x[j];
        dl_real back = dot * scale / (dl_real)n * r * r * r;
        for (size_t j = 0; j < n; j++) {
            if (dgain) dgain[j] += scale * dy[j] * x[j] * r;
            dl_real d = scale * r * dy[j] * (gain ? gain[j] : 1) - back * x[j];
            dx[j] = accumulate ? dx[j] + d : d;
        }
    }
}

#define GELU_A ((dl_real)1.5957691216057308) /* 2√(2/π) */
#define GELU_B ((dl_real)0.044715)

static dl_real gelu_gate(dl_real x)
{
    return 1 / (1 + DL_REAL_FN(exp)(-GELU_A * (x + GELU_B * x * x * x)));
}

static void gelu(size_t n, const dl_real *x, dl_real *y)
{
    for (size_t i = 0; i < n; i++) y[i] = x[i] * gelu_gate(x[i]);
}

static void gelu_backward(size_t n, const dl_real *x, const dl_real *dy, dl_real *dx)
{
    for (size_t i = 0; i < n; i++) {
        dl_real s = gelu_gate(x[i]);
        dl_real slope = GELU_A * (1 + 3 * GELU_B * x[i] * x[i]);
        dx[i] = dy[i] * (s + x[i] * s * (1 - s) * slope);
    }
}

static void exponential(size_t n, const dl_real *x, dl_real *y)
{
    for (size_t i = 0; i < n; i++) y[i] = DL_REAL_FN(exp)(x[i]);
}

static void cos_sin(size_t n, const dl_real *x, dl_real *c, dl_real *s)
{
    for (size_t i = 0; i < n; i++) {
        c[i] = DL_REAL_FN(cos)(x[i]);
        if (s) s[i] = DL_REAL_FN(sin)(x[i]);
    }
}

static void rotate(size_t rows, size_t heads, size_t h, dl_real *x, size_t x_row,
                   const uint32_t *position, const dl_real *cosine, const dl_real *sine, int sign)
{
    for (size_t i = 0; i < rows; i++) {
        const dl_real *c = cosine + position[i] * h, *s = sine + position[i] * h;
        for (size_t head = 0; head < heads; head++) {
            dl_real *low = x + i * x_row + head * 2 * h, *high = low + h;
            for (size_t j = 0; j < h; j++) {
                dl_real a = low[j], b = high[j], t = sign < 0 ? -s[j] : s[j];
                low[j] = a * c[j] - b * t;
                high[j] = b * c[j] + a * t;
            }
        }
    }
}

static void dropout(size_t n, uint32_t key, uint32_t limit, dl_real scale, dl_real *x)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t h = key + (uint32_t)i;
        h = (h ^ h >> 16) * 0x7feb352du;
        h = (h ^ h >> 15) * 0x846ca68bu;
        h ^= h >> 16;
        x[i] = h >> 16 < limit ? 0 : x[i] * scale;
    }
}

static void add(size_t n, const dl_real *x, dl_real *y)
{
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

static void column_sums(size_t rows, size_t n, const dl_real *x, size_t x_row, dl_real *sums)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < n; j++) sums[j] += x[i * x_row + j];
}

static double square_sum(size_t n, const dl_real *x)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

static void adamw(size_t n, const struct dl_adamw_step *t, const dl_real *gradient, dl_real *m,
                  dl_real *v, dl_real *x)
{
    dl_real keep = 1 - t->rate * t->decay;
    for (size_t i = 0; i < n; i++) {
        dl_real g = gradient[i] * t->scale;
        m[i] = t->beta1 * m[i] + (1 - t->beta1) * g;
        v[i] = t->beta2 * v[i] + (1 - t->beta2) * g * g;
        dl_real root = DL_REAL_FN(sqrt)(v[i] / t->correction2) + t->epsilon;
        x[i] = x[i] * keep - t->rate * (m[i] / t->correction1) / root;
    }
}

void dl_kernels_fill_c(struct dl_kernels *kernels)
{
    *kernels = (struct dl_kernels){
        .name = "c",
        .gemm = gemm,
        .pack_rows = pack_rows,
        .pack_transposed = pack_transposed,
        .softmax = softmax,
        .difference = difference,
        .softmax_backward = softmax_backward,
        .rmsnorm = rmsnorm,
        .rmsnorm_backward = rmsnorm_backward,
        .gelu = gelu,
        .gelu_backward = gelu_backward,
        .exp = exponential,
        .cos_sin = cos_sin,
        .rotate = rotate,
        .dropout = dropout,
        .add = add,
        .column_sums = column_sums,
        .square_sum = square_sum,
        .adamw = adamw,
    };
}
