/* A linear layer Y = X W + b inside a network: its place among the parameters,
 * both packed forms of its weight, forward and backward.
 *
 *   dX = dY Wᵀ,  dW = Xᵀ dY,  db = Σ_rows dY */
#ifndef DL_MODEL_LINEAR_H
#define DL_MODEL_LINEAR_H

#include "model/carve.h"
#include "model/network.h"
#include "model/parameters.h"

struct dl_linear {
    size_t in, out;
    size_t weight; /* offset of W (in, out); the bias follows it, if there is one */
    int has_bias;
    size_t back_first, back_count; /* the inputs that need a gradient: all, unless set otherwise */
    dl_real *packed, *packed_transposed;
};

/* Registers `name`.weight and, with a bias, `name`.bias. */
struct dl_linear dl_linear_add(struct dl_parameter_list *list, size_t in, size_t out, int has_bias,
                               const char *name);
/* Room for the packed forms; after back_first and back_count are settled. */
void dl_linear_carve(struct dl_linear *linear, struct dl_carve *carve);
/* Packs the present values. */
void dl_linear_update(const struct dl_network *network, struct dl_linear *linear);

/* y (rows, out) = x (rows, in) W + b, or y += that. */
void dl_linear_forward(const struct dl_network *network, const struct dl_linear *linear,
                       size_t rows, const dl_real *x, dl_real *y, int accumulate);
/* dW += xᵀ dy, db += Σ dy, and dx (rows, back_count) = dy Wᵀ unless dx is NULL. */
void dl_linear_backward(const struct dl_network *network, const struct dl_linear *linear,
                        size_t rows, const dl_real *x, const dl_real *dy, dl_real *dx,
                        dl_real *gradients);

#endif
