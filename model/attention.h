/* Differential attention of one sequence (arXiv 2605.16112; Ye et al. 2024):
 *
 *   O = (A1 − λ A2) V,  Ai = softmax(Qi Kiᵀ / √w)   for each head of width w
 *
 * With one map it is softmax attention: O = A1 V. */
#ifndef DL_MODEL_ATTENTION_H
#define DL_MODEL_ATTENTION_H

#include "model/carve.h"
#include "model/kernels/kernels.h"
#include "model/network.h"

/* A token's row of projections: [Q1 | Q2 | K1 | K2 | V], each `heads` vectors
 * of `width`; with one map [Q | K | V]. */
struct dl_attention_shape {
    uint32_t heads, width, maps;
    uint32_t row; /* (2 maps + 1) · heads · width */
};

/* A head's maps over n tokens stand side by side: a row for each key, and one
 * more for what a softmax keeps there. In a row n queries of the first map, n of
 * the second; a vector may begin at any of them. */
static inline size_t dl_attention_row(const struct dl_attention_shape *shape, size_t n)
{
    return dl_padded((shape->maps - 1) * n + dl_padded(n));
}
static inline size_t dl_attention_maps(const struct dl_attention_shape *shape, size_t n)
{
    return (n + 1) * dl_attention_row(shape, n);
}

/* Where the figures of a sequence go: the pair's, of which the sequence has the
 * tokens from `first` on, and `part` of the weight (the parts of a pair sum to 1). */
struct dl_observed {
    struct dl_attention *attention;
    uint32_t first;
    double part;
};

/* Scratch for one sequence of up to n_max tokens. */
struct dl_attention_scratch {
    dl_real *packed; /* a head's K or V, transposed */
    dl_real *mix;    /* (n, row): A1 − λ A2 */
    dl_real *d[3];   /* (n, row) each: backward only */
};
void dl_attention_carve(struct dl_attention_scratch *scratch, struct dl_carve *carve,
                        const struct dl_attention_shape *shape, uint32_t n_max);

/* qkv (n, shape.row), rotated already; maps: those of head h start at
 * h · head_stride (0: they are not kept). out (n, heads · width).
 * `observed`, if given, receives entropy, share and received of layer `layer`,
 * also by head. */
void dl_attention_forward(const struct dl_kernels *kernels, const struct dl_attention_shape *shape,
                          dl_real lambda, uint32_t n, const dl_real *qkv, dl_real *maps,
                          size_t head_stride, dl_real *out, struct dl_attention_scratch *scratch,
                          const struct dl_observed *observed, uint32_t layer);

/* From dout (n, heads · width) to dqkv (n, shape.row), which is set. Returns dλ. */
dl_real dl_attention_backward(const struct dl_kernels *kernels,
                              const struct dl_attention_shape *shape, dl_real lambda, uint32_t n,
                              const dl_real *qkv, const dl_real *maps, size_t head_stride,
                              const dl_real *dout, dl_real *dqkv,
                              struct dl_attention_scratch *scratch);

#endif
