/* Numeric kernels: one typed signature each, a plain C version that is always
 * built, faster versions per instruction set, chosen at run time.
 *
 * Contract, for every kernel and tier:
 *   - Pointers need only the alignment of dl_real. Nothing outside the stated
 *     extents is read or written. Any count may be 0.
 *   - Outputs do not overlap inputs unless a kernel says "in place".
 *   - Within a tier the result of an output element depends on the inputs of
 *     that element alone: not on alignment, nor on where it stands in a tile or
 *     how many rows are computed with it. Batching is built on this.
 *   - Inputs are finite; a NaN gives a NaN, not a fault.
 *
 * Tolerance of each tier against plain C (x: the element, n, k: lengths;
 * ε = 2^−24); tests/kernels holds every tier to it:
 *
 *   gemm                    k · 2ε · Σ|a·b|        (order of summation, fused multiply-add)
 *   pack_*                  exact
 *   softmax, difference     4e-6 relative + 1e-9
 *   softmax_backward        1e-5 · (|a| max|da|)
 *   rmsnorm, its backward   1e-5 relative to the row's largest
 *   gelu, its backward      2e-6 relative + 1e-6
 *   exp                     3e-7 relative, for −87 ≤ x ≤ 88; clamped beyond
 *   cos_sin                 2e-6 absolute, for |x| ≤ 1e5
 *   rotate                  2ε relative to the pair's length
 *   dropout                 exact
 *   add, column_sums        rows · 2ε · Σ|x|
 *   square_sum              1e-6 relative (accumulated in double)
 *   adamw                   1e-6 relative + 1e-9
 *
 * Thread: all are pure functions of their arguments. */
#ifndef DL_MODEL_KERNELS_H
#define DL_MODEL_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "model/real.h"

/* Columns of one panel of a packed right-hand matrix. */
#define DL_PANEL 16

/* C (m, n) = A (m, k) · B (k, n) [+ bias] or C += that.
 *
 *   A[i, p] = a[i·a_row + p·a_column]            (a_row = 1 gives the transposed form)
 *   B[p, j] = b[(j/16)·b_panel + p·b_row + j%16] packed: b_panel = 16k, b_row = 16
 *                                                plain row-major: b_panel = 16, b_row = row length
 *   C[i, j] = c[i·c_row + j]
 *
 * The forms of a linear layer Y = X W, W (in, out):
 *   forward   Y  = X  · W     W packed by pack_rows
 *   backward  dX = dY · Wᵀ    Wᵀ packed by pack_transposed
 *             dW = Xᵀ · dY    a_row = 1, a_column = row length of X; dY plain
 * Each element is summed over p in order in one accumulator; bias comes first,
 * an accumulated C is added last. */
struct dl_gemm {
    size_t m, n, k;
    const dl_real *a;
    size_t a_row, a_column;
    const dl_real *b;
    size_t b_row, b_panel;
    dl_real *c;
    size_t c_row;
    const dl_real *bias; /* (n) or NULL */
    int accumulate;
};
typedef void dl_gemm_fn(const struct dl_gemm *gemm);

static inline size_t dl_packed_size(size_t k, size_t n)
{
    return (n + DL_PANEL - 1) / DL_PANEL * DL_PANEL * k;
}

/* Packs B (k, n) into panels (⌈n/16⌉, k, 16), missing columns as zeros, from
 * rows: source (k, n) with row length `row`; transposed: source (n, k). */
typedef void dl_pack_fn(size_t k, size_t n, const dl_real *source, size_t row, dl_real *packed);

/* Rows of attention maps are padded to whole vectors; what is in the padding is
 * finite, and of no use. */
#define DL_PAD 8
static inline size_t dl_padded(size_t n)
{
    return (n + DL_PAD - 1) / DL_PAD * DL_PAD;
}

/* A softmax A = softmax(scale · x) down each column of x (n, columns; row length
 * `row` ≥ dl_padded(columns)) is kept in two parts: the terms
 * e^(scale · (x − top)) in place, and in one more row, the n-th, what makes
 * shares of them: 1/(the column's sum). Down, so that vectors hold columns and
 * nothing has to be gathered across one; apart, so that the division costs no
 * pass of its own. */
typedef void dl_softmax_fn(size_t n, size_t columns, dl_real scale, dl_real *x, size_t row);

/* out (n, columns) = A1 − λ · A2 of two such softmaxes, or A1 if a2 is NULL; all
 * have row length `row`. */
typedef void dl_difference_fn(size_t n, size_t columns, dl_real lambda, const dl_real *a1,
                              const dl_real *a2, dl_real *out, size_t row);

/* Through such a softmax: dS = scale · A ∘ (dA − (dA·A)), where dA·A is the
 * column's dot product. Returns the sum over columns of dA·A. ds may be da. */
typedef dl_real dl_softmax_backward_fn(size_t n, size_t columns, dl_real scale, const dl_real *a,
                                       const dl_real *da, dl_real *ds, size_t row);

/* y = x · r · scale ∘ gain, r = 1/√(mean(x²) + ε), by row of n; gain NULL is
 * all ones. r goes to `inverse` (rows) unless NULL. y may be x. */
typedef void dl_rmsnorm_fn(size_t rows, size_t n, const dl_real *x, size_t x_row,
                           const dl_real *gain, dl_real scale, dl_real *y, size_t y_row,
                           dl_real *inverse);
#define DL_RMSNORM_EPSILON ((dl_real)1e-6)

/* Through it. With g = scale · dy ∘ gain:
 *   dx = r · (g − x · r² · mean(g ∘ x)),  dgain += Σ_rows scale · dy ∘ x · r
 * dx is added to if `accumulate`, else set (and then may be dy). dgain may be NULL. */
typedef void dl_rmsnorm_backward_fn(size_t rows, size_t n, const dl_real *x, size_t x_row,
                                    const dl_real *gain, dl_real scale, const dl_real *inverse,
                                    const dl_real *dy, size_t dy_row, dl_real *dx, size_t dx_row,
                                    int accumulate, dl_real *dgain);

/* y = GELU(x) = x · σ(2u), u = √(2/π) (x + 0.044715 x³)   (Hendrycks and
 * Gimpel 2016, the tanh form). y may be x. */
typedef void dl_gelu_fn(size_t n, const dl_real *x, dl_real *y);
/* dx = dy · GELU'(x), GELU' = s + 2 x s (1 − s) u', s = σ(2u). dx may be dy. */
typedef void dl_gelu_backward_fn(size_t n, const dl_real *x, const dl_real *dy, dl_real *dx);

/* y = exp(x). y may be x. */
typedef void dl_exp_fn(size_t n, const dl_real *x, dl_real *y);
/* c = cos(x), s = sin(x); s may be NULL. */
typedef void dl_cos_sin_fn(size_t n, const dl_real *x, dl_real *c, dl_real *s);

/* Rotary position embedding in place (Su et al. 2021), half-split: in each of
 * `heads` consecutive vectors of width 2h in a row, the pair (x[i], x[i+h])
 * turns by the angle of (position, i). cosine, sine: (positions, h). sign −1
 * turns back, which is also the backward pass. */
typedef void dl_rotate_fn(size_t rows, size_t heads, size_t h, dl_real *x, size_t x_row,
                          const uint32_t *position, const dl_real *cosine, const dl_real *sine,
                          int sign);

/* Dropout in place, forward and backward alike: element i becomes 0 where the
 * upper half of a hash of key and i is below `limit` (of 65536), else x · scale.
 * The hash is the same in every tier:
 *   h = key + i;  h ^= h >> 16;  h *= 0x7feb352d;  h ^= h >> 15;  h *= 0x846ca68b;
 *   h ^= h >> 16                     (Wellons' lowbias32, all modulo 2^32) */
typedef void dl_dropout_fn(size_t n, uint32_t key, uint32_t limit, dl_real scale, dl_real *x);

/* y += x. */
typedef void dl_add_fn(size_t n, const dl_real *x, dl_real *y);
/* sums (n) += the sum over rows of x (rows, n). */
typedef void dl_column_sums_fn(size_t rows, size_t n, const dl_real *x, size_t x_row,
                               dl_real *sums);
/* Σ x². */
typedef double dl_square_sum_fn(size_t n, const dl_real *x);

/* AdamW (Loshchilov and Hutter 2019), g scaled by `scale` first:
 *   m = β1 m + (1 − β1) g,  v = β2 v + (1 − β2) g²
 *   x = x · (1 − rate · decay) − rate · (m / c1) / (√(v / c2) + ε) */
struct dl_adamw_step {
    dl_real rate, beta1, beta2, epsilon, decay, scale;
    dl_real correction1, correction2; /* c = 1 − β^step */
};
typedef void dl_adamw_fn(size_t n, const struct dl_adamw_step *step, const dl_real *gradient,
                         dl_real *m, dl_real *v, dl_real *x);

struct dl_kernels {
    const char *name; /* "c", "avx2", "avx512", "neon" */
    dl_gemm_fn *gemm;
    dl_pack_fn *pack_rows, *pack_transposed;
    dl_softmax_fn *softmax;
    dl_difference_fn *difference;
    dl_softmax_backward_fn *softmax_backward;
    dl_rmsnorm_fn *rmsnorm;
    dl_rmsnorm_backward_fn *rmsnorm_backward;
    dl_gelu_fn *gelu;
    dl_gelu_backward_fn *gelu_backward;
    dl_exp_fn *exp;
    dl_cos_sin_fn *cos_sin;
    dl_rotate_fn *rotate;
    dl_dropout_fn *dropout;
    dl_add_fn *add;
    dl_column_sums_fn *column_sums;
    dl_square_sum_fn *square_sum;
    dl_adamw_fn *adamw;
};

/* The best tier of this processor, or the one that the environment variable
 * DRIFTLINE_KERNELS names ("c", "avx2", "avx512", "neon"). DL_ERR_INVALID for an
 * unknown name, DL_ERR_UNSUPPORTED for a tier that this processor or build
 * lacks. Thread: any. */
int dl_kernels_choose(const struct dl_kernels **kernels, struct dl_error *error);
/* Tiers by name; NULL where the processor or the build lacks it. */
const struct dl_kernels *dl_kernels_named(const char *name);
/* All tier names, plain C first, NULL at the end. */
extern const char *const dl_kernels_names[];

/* Each tier overwrites what it does better. Called by kernels.c only. */
void dl_kernels_fill_c(struct dl_kernels *kernels);
void dl_kernels_fill_avx2(struct dl_kernels *kernels);
void dl_kernels_fill_avx2_rows(struct dl_kernels *kernels);
void dl_kernels_fill_avx512(struct dl_kernels *kernels);
void dl_kernels_fill_avx512_rows(struct dl_kernels *kernels);
void dl_kernels_fill_neon(struct dl_kernels *kernels);
dl_gemm_fn dl_gemm_avx2; /* for the AVX-512 tier, where it is the faster one */

#endif
