/* Differential attention, forward and backward, one sequence at a time. Maps are
 * kept transposed: a column belongs to a query, row j tells its share of key j. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "model/attention.h"

void dl_attention_carve(struct dl_attention_scratch *scratch, struct dl_carve *carve,
                        const struct dl_attention_shape *shape, uint32_t n_max)
{
    size_t map = dl_attention_maps(shape, n_max);
    scratch->packed = dl_carve_take(carve, dl_packed_size(shape->width, n_max), sizeof(dl_real));
    scratch->mix = dl_carve_take(carve, map, sizeof(dl_real));
    for (int i = 0; i < 3; i++) scratch->d[i] = dl_carve_take(carve, map, sizeof(dl_real));
}

/* The largest `count` values of x (n) summed. Destroys x: a partial selection
 * by repeated maximum, as count is a twentieth of n. */
static double largest_sum(double *x, uint32_t n, uint32_t count)
{
    double sum = 0;
    for (uint32_t c = 0; c < count; c++) {
        uint32_t best = c;
        for (uint32_t j = c + 1; j < n; j++)
            if (x[j] > x[best]) best = j;
        double top = x[best];
        x[best] = x[c];
        x[c] = top;
        sum += top;
    }
    return sum;
}

/* Adds one head's |A1 − λA2|, rows normalised, to the running means. A token
 * alone has nothing to spread its attention over: entropy 0. */
static void observe(const dl_real *mix, uint32_t n, size_t row, uint32_t head, uint32_t heads,
                    const struct dl_observed *observed, uint32_t layer)
{
    struct dl_attention *attention = observed->attention;
    double share[2 * (DL_WINDOW_MAX + 1)];
    const double each = observed->part / ((double)n * heads);
    const uint32_t top = (n + 19) / 20, tokens = attention->tokens;
    const int fits = tokens <= attention->token_capacity;
    float *received = attention->received && fits
                          ? attention->received + (size_t)layer * tokens + observed->first
                          : NULL;
    float *by_head = attention->received_by_head && fits
                         ? attention->received_by_head + ((size_t)layer * heads + head) * tokens +
                               observed->first
                         : NULL;
    for (uint32_t i = 0; i < n; i++, mix++) { /* query i; key j is a row further down */
        double sum = 0, entropy = 0;
        for (uint32_t j = 0; j < n; j++) sum += fabs((double)mix[j * row]);
        for (uint32_t j = 0; j < n; j++) {
            /* Two maps that cancel to nothing attend to nothing in particular. */
            share[j] = sum > 0 ? fabs((double)mix[j * row]) / sum : 1.0 / n;
            if (share[j] > 0) entropy -= share[j] * log(share[j]);
            if (received) received[j] += (float)(share[j] * each);
            if (by_head) by_head[j] += (float)(share[j] * each * heads);
        }
        if (n > 1) attention->entropy[layer] += each * entropy / log((double)n);
        attention->top5_share[layer] += each * largest_sum(share, n, top);
    }
}

/* C (m, n) = A (m, k) · B (k, n), each with its strides as in struct dl_gemm. */
static void multiply(const struct dl_kernels *kernels, size_t m, size_t n, size_t k,
                     const dl_real *a, size_t a_row, size_t a_column, const dl_real *b,
                     size_t b_row, size_t b_panel, dl_real *c, size_t c_row)
{
    kernels->gemm(&(struct dl_gemm){.m = m,
                                    .n = n,
                                    .k = k,
                                    .a = a,
                                    .a_row = a_row,
                                    .a_column = a_column,
                                    .b = b,
                                    .b_row = b_row,
                                    .b_panel = b_panel,
                                    .c = c,
                                    .c_row = c_row});
}

void dl_attention_forward(const struct dl_kernels *kernels, const struct dl_attention_shape *shape,
                          dl_real lambda, uint32_t n, const dl_real *qkv, dl_real *maps,
                          size_t head_stride, dl_real *out, struct dl_attention_scratch *scratch,
                          const struct dl_observed *observed, uint32_t layer)
{
    const size_t width = shape->width, all = (size_t)shape->heads * width,
                 row = dl_attention_row(shape, n), padded = dl_padded(n);
    const dl_real scale = 1 / DL_REAL_FN(sqrt)((dl_real)width);
    dl_real *mix = scratch->mix;
    for (size_t h = 0; h < shape->heads; h++) {
        dl_real *a = maps + h * head_stride;
        for (size_t m = 0; m < shape->maps; m++) {
            const dl_real *q = qkv + m * all + h * width, *k = q + shape->maps * all;
            kernels->pack_transposed(width, n, q, shape->row, scratch->packed);
            /* The padding, which the next map overwrites, spares a tail. */
            multiply(kernels, n, padded, width, k, shape->row, 1, scratch->packed, DL_PANEL,
                     DL_PANEL * width, a + m * n, row);
        }
        kernels->softmax(n, shape->maps * n, scale, a, row);
        kernels->difference(n, n, lambda, a, shape->maps == 2 ? a + n : NULL, mix, row);
        if (observed) observe(mix, n, row, (uint32_t)h, shape->heads, observed, layer);
        multiply(kernels, n, width, n, mix, 1, row, qkv + 2 * shape->maps * all + h * width,
                 shape->row, DL_PANEL, out + h * width, all);
    }
}

/* With M = A1 − λ A2 and O = M V:
 *   dV  = Mᵀ dO                       dM  = dO Vᵀ
 *   dS1 = A1 ∘ (dM − rowsum(dM ∘ A1))          (softmax; times the scale 1/√w)
 *   dS2 = −λ A2 ∘ (dM − rowsum(dM ∘ A2)),      dλ = −Σ dM ∘ A2
 *   dQi = dSi Ki                      dKi = dSiᵀ Qi */
dl_real dl_attention_backward(const struct dl_kernels *kernels,
                              const struct dl_attention_shape *shape, dl_real lambda, uint32_t n,
                              const dl_real *qkv, const dl_real *maps, size_t head_stride,
                              const dl_real *dout, dl_real *dqkv,
                              struct dl_attention_scratch *scratch)
{
    const size_t width = shape->width, all = (size_t)shape->heads * width,
                 row = dl_attention_row(shape, n);
    const size_t v_at = 2 * shape->maps * all;
    const dl_real scale = 1 / DL_REAL_FN(sqrt)((dl_real)width);
    dl_real dlambda = 0;
    for (size_t h = 0; h < shape->heads; h++) {
        const dl_real *a = maps + h * head_stride;
        dl_real *dm = scratch->d[0], *mix = scratch->mix;
        kernels->difference(n, n, lambda, a, shape->maps == 2 ? a + n : NULL, mix, row);
        multiply(kernels, n, width, n, mix, row, 1, dout + h * width, all, DL_PANEL,
                 dqkv + v_at + h * width, shape->row);
        kernels->pack_transposed(width, n, dout + h * width, all, scratch->packed);
        multiply(kernels, n, dl_padded(n), width, qkv + v_at + h * width, shape->row, 1,
                 scratch->packed, DL_PANEL, DL_PANEL * width, dm, row);
        for (size_t m = 0; m < shape->maps; m++) {
            const size_t q_at = m * all + h * width, k_at = q_at + shape->maps * all;
            dl_real *ds = scratch->d[1 + m];
            dl_real sum = kernels->softmax_backward(n, n, m == 0 ? scale : -lambda * scale,
                                                    a + m * n, dm, ds, row);
            if (m == 1) dlambda -= sum;
            multiply(kernels, n, width, n, ds, 1, row, qkv + k_at, shape->row, DL_PANEL,
                     dqkv + q_at, shape->row);
            multiply(kernels, n, width, n, ds, row, 1, qkv + q_at, shape->row, DL_PANEL,
                     dqkv + k_at, shape->row);
        }
    }
    return dlambda;
}
