/* Linear layers over packed weights. */
#include "model/linear.h"

#include <math.h>

#include "model/architecture.h"

struct dl_linear dl_linear_add(struct dl_parameter_list *list, size_t in, size_t out, int has_bias,
                               const char *name)
{
    struct dl_linear linear = {.in = in, .out = out, .has_bias = has_bias, .back_count = in};
    if (has_bias)
        linear.weight = dl_parameters_add_linear(list, (uint32_t)in, (uint32_t)out, name);
    else
        linear.weight = dl_parameters_add(list, (uint32_t)in, (uint32_t)out, 1, DL_INITIAL_UNIFORM,
                                          1 / sqrt((double)in), "%s.weight", name);
    return linear;
}

void dl_linear_carve(struct dl_linear *linear, struct dl_carve *carve)
{
    linear->packed = dl_carve_take(carve, dl_packed_size(linear->in, linear->out), sizeof(dl_real));
    linear->packed_transposed =
        dl_carve_take(carve, dl_packed_size(linear->out, linear->back_count), sizeof(dl_real));
}

void dl_linear_update(const struct dl_network *network, struct dl_linear *linear)
{
    const dl_real *weight = network->values + linear->weight;
    network->kernels->pack_rows(linear->in, linear->out, weight, linear->out, linear->packed);
    network->kernels->pack_transposed(linear->out, linear->back_count,
                                      weight + linear->back_first * linear->out, linear->out,
                                      linear->packed_transposed);
}

void dl_linear_forward(const struct dl_network *network, const struct dl_linear *linear,
                       size_t rows, const dl_real *x, dl_real *y, int accumulate)
{
    const dl_real *weight = network->values + linear->weight;
    network->kernels->gemm(
        &(struct dl_gemm){.m = rows,
                          .n = linear->out,
                          .k = linear->in,
                          .a = x,
                          .a_row = linear->in,
                          .a_column = 1,
                          .b = linear->packed,
                          .b_row = DL_PANEL,
                          .b_panel = DL_PANEL * linear->in,
                          .c = y,
                          .c_row = linear->out,
                          .bias = linear->has_bias ? weight + linear->in * linear->out : NULL,
                          .accumulate = accumulate});
}

void dl_linear_backward(const struct dl_network *network, const struct dl_linear *linear,
                        size_t rows, const dl_real *x, const dl_real *dy, dl_real *dx,
                        dl_real *gradients)
{
    dl_real *dweight = gradients + linear->weight;
    network->kernels->gemm(&(struct dl_gemm){.m = linear->in,
                                             .n = linear->out,
                                             .k = rows,
                                             .a = x,
                                             .a_row = 1,
                                             .a_column = linear->in,
                                             .b = dy,
                                             .b_row = linear->out,
                                             .b_panel = DL_PANEL,
                                             .c = dweight,
                                             .c_row = linear->out,
                                             .accumulate = 1});
    if (linear->has_bias)
        network->kernels->column_sums(rows, linear->out, dy, linear->out,
                                      dweight + linear->in * linear->out);
    if (dx == NULL) return;
    network->kernels->gemm(&(struct dl_gemm){.m = rows,
                                             .n = linear->back_count,
                                             .k = linear->out,
                                             .a = dy,
                                             .a_row = linear->out,
                                             .a_column = 1,
                                             .b = linear->packed_transposed,
                                             .b_row = DL_PANEL,
                                             .b_panel = DL_PANEL * linear->out,
                                             .c = dx,
                                             .c_row = linear->back_count});
}
