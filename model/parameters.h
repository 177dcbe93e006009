/* The list of a network's parameter tensors. Each is registered once, with its
 * shape and how it starts; values and gradients then live in two flat blocks
 * with the same offsets. */
#ifndef DL_MODEL_PARAMETERS_H
#define DL_MODEL_PARAMETERS_H

#include "base/rng.h"
#include "model/network.h"

#define DL_PARAMETERS_MAX 160

enum dl_initial {
    DL_INITIAL_ZERO,
    DL_INITIAL_ONE,
    DL_INITIAL_UNIFORM,    /* in ± amount */
    DL_INITIAL_NORMAL,     /* standard deviation `amount` */
    DL_INITIAL_FREQUENCIES /* 10^−linspace(0, 2) along the columns */
};

struct dl_parameter_list {
    uint32_t count;
    size_t total; /* values in all */
    struct dl_parameter items[DL_PARAMETERS_MAX];
    size_t offsets[DL_PARAMETERS_MAX];
    enum dl_initial initial[DL_PARAMETERS_MAX];
    double amount[DL_PARAMETERS_MAX];
};

/* Registers a tensor (rows, columns) and returns its offset in the blocks.
 * Matrices decay, all else does not: `decay` says which this is. */
size_t dl_parameters_add(struct dl_parameter_list *list, uint32_t rows, uint32_t columns, int decay,
                         enum dl_initial initial, double amount, const char *format, ...)
    __attribute__((format(printf, 7, 8)));
/* A linear layer's weight (in, out) and bias (1, out): `name`.weight and
 * `name`.bias, uniform in ± 1/√in. Returns the weight's offset; the bias
 * follows it at once. */
size_t dl_parameters_add_linear(struct dl_parameter_list *list, uint32_t in, uint32_t out,
                                const char *name);
/* Points the items into the blocks and draws the values. */
void dl_parameters_bind(struct dl_parameter_list *list, dl_real *values, dl_real *gradients,
                        struct dl_rng *rng);

#endif
