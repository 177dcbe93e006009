/* DiffDyG's parameters: which there are, how they start, and what is derived
 * from them once for all pairs (packed weights, λ, rotary angles, the table of
 * the co-occurrence encoding). */
#include "model/diffdyg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- parameters ---------------------------------------------------------------- */

static struct diffdyg_linear add_linear(struct dl_parameter_list *list, size_t in, size_t out,
                                        int has_bias, const char *name)
{
    struct diffdyg_linear linear = {.in = in, .out = out, .has_bias = has_bias};
    if (has_bias)
        linear.weight = dl_parameters_add_linear(list, (uint32_t)in, (uint32_t)out, name);
    else
        linear.weight = dl_parameters_add(list, (uint32_t)in, (uint32_t)out, 1, DL_INITIAL_UNIFORM,
                                          1 / sqrt((double)in), "%s.weight", name);
    return linear;
}

static void add_layer(struct diffdyg_plan *plan, struct dl_parameter_list *list,
                      const struct dl_network_config *config, uint32_t index)
{
    struct diffdyg_layer *layer = &plan->layers[index];
    uint32_t d = config->width;
    char name[4][48];
    static const char *const parts[4] = {"qkv", "output", "mlp.0", "mlp.1"};
    for (int i = 0; i < 4; i++) snprintf(name[i], sizeof name[i], "layer.%u.%s", index, parts[i]);
    layer->attention_norm =
        dl_parameters_add(list, 1, d, 0, DL_INITIAL_ONE, 0, "layer.%u.attention_norm", index);
    layer->qkv = add_linear(list, d, plan->shape.row, 0, name[0]);
    if (config->differential) {
        layer->lambda = dl_parameters_add(list, 4, d / config->heads, 0, DL_INITIAL_NORMAL, 0.1,
                                          "layer.%u.lambda", index);
        layer->lambda_initial = (dl_real)(0.8 - 0.6 * exp(-0.3 * index));
    }
    layer->output = add_linear(list, d, d, 0, name[1]);
    layer->mlp_norm =
        dl_parameters_add(list, 1, d, 0, DL_INITIAL_ONE, 0, "layer.%u.mlp_norm", index);
    layer->mlp[0] = add_linear(list, d, 2 * d, 1, name[2]);
    layer->mlp[1] = add_linear(list, 2 * d, d, 1, name[3]);
}

static void carve_linear(struct diffdyg_linear *linear, struct dl_carve *carve)
{
    linear->packed = dl_carve_take(carve, dl_packed_size(linear->in, linear->out), sizeof(dl_real));
    linear->packed_transposed =
        dl_carve_take(carve, dl_packed_size(linear->out, linear->in), sizeof(dl_real));
}

static void carve_plan(struct diffdyg_plan *plan, struct dl_carve *carve,
                       const struct dl_network_config *config)
{
    size_t positions = config->window + 1;
    carve_linear(&plan->token, carve);
    carve_linear(&plan->self, carve);
    for (uint32_t l = 0; l < config->layers; l++) {
        carve_linear(&plan->layers[l].qkv, carve);
        carve_linear(&plan->layers[l].output, carve);
        carve_linear(&plan->layers[l].mlp[0], carve);
        carve_linear(&plan->layers[l].mlp[1], carve);
    }
    carve_linear(&plan->head[0], carve);
    carve_linear(&plan->head[1], carve);
    plan->token_encodings = dl_carve_take(
        carve, dl_packed_size(config->width, DL_TIME_COLUMNS + DL_SEEN_COLUMNS), sizeof(dl_real));
    plan->seen_table = dl_carve_take(carve, positions * DL_SEEN_COLUMNS, sizeof(dl_real));
    plan->seen_relu = dl_carve_take(carve, positions * DL_SEEN_COLUMNS, sizeof(dl_real));
    plan->cosine = dl_carve_take(carve, positions * plan->shape.width / 2, sizeof(dl_real));
    plan->sine = dl_carve_take(carve, positions * plan->shape.width / 2, sizeof(dl_real));
}

/* Rotary angles: position · 10000^(−i / h), i < h = half a head. */
static void fill_rotations(struct diffdyg_plan *plan, uint32_t positions)
{
    size_t h = plan->shape.width / 2;
    for (size_t p = 0; p < positions; p++) {
        for (size_t i = 0; i < h; i++) {
            double angle = (double)p * pow(10000, -(double)i / (double)h);
            plan->cosine[p * h + i] = (dl_real)cos(angle);
            plan->sine[p * h + i] = (dl_real)sin(angle);
        }
    }
}

int dl_diffdyg_plan_new(struct dl_network *network)
{
    const struct dl_network_config *config = &network->config;
    struct dl_parameter_list *list = &network->parameters;
    struct diffdyg_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) return DL_ERR_NOMEM;
    network->plan = plan;
    uint32_t d = config->width, maps = config->differential ? 2 : 1;
    plan->layout = dl_token_layout_of(config);
    plan->shape = (struct dl_attention_shape){.heads = config->heads,
                                              .width = d / config->heads,
                                              .maps = maps,
                                              .row = (2 * maps + 1) * d};
    plan->token = add_linear(list, plan->layout.columns, d, 1, "token");
    plan->self = add_linear(list, DL_SELF_COLUMNS, d, 1, "self");
    plan->side = dl_parameters_add(list, 2, d, 0, DL_INITIAL_NORMAL, 0.02, "side");
    if (config->time_encoding) {
        plan->frequency = dl_parameters_add(list, 1, DL_TIME_COLUMNS, 0, DL_INITIAL_FREQUENCIES, 0,
                                            "time.frequency");
        plan->phase =
            dl_parameters_add(list, 1, DL_TIME_COLUMNS, 0, DL_INITIAL_ZERO, 0, "time.phase");
    }
    if (config->cooccurrence) {
        plan->seen_hidden = add_linear(list, 1, DL_SEEN_COLUMNS, 1, "cooccurrence.0");
        plan->seen_output = add_linear(list, DL_SEEN_COLUMNS, DL_SEEN_COLUMNS, 1, "cooccurrence.1");
    }
    for (uint32_t l = 0; l < config->layers; l++) add_layer(plan, list, config, l);
    plan->final_norm = dl_parameters_add(list, 1, d, 0, DL_INITIAL_ONE, 0, "final_norm");
    plan->head[0] = add_linear(list, 2 * d, d, 1, "head.0");
    plan->head[1] = add_linear(list, d, 1, 1, "head.1");
    struct dl_carve carve = {0};
    carve_plan(plan, &carve, config);
    plan->memory = aligned_alloc(DL_CARVE_ALIGN, carve.used);
    if (plan->memory == NULL) return DL_ERR_NOMEM;
    carve = (struct dl_carve){.base = plan->memory};
    carve_plan(plan, &carve, config);
    fill_rotations(plan, config->window + 1);
    return DL_OK;
}

void dl_diffdyg_plan_free(struct dl_network *network)
{
    struct diffdyg_plan *plan = network->plan;
    free(plan->memory);
    free(plan);
}

/* ---- what is derived from the values --------------------------------------------- */

static void pack(const struct dl_network *network, struct diffdyg_linear *linear)
{
    const dl_real *weight = network->values + linear->weight;
    network->kernels->pack_rows(linear->in, linear->out, weight, linear->out, linear->packed);
    network->kernels->pack_transposed(linear->out, linear->in, weight, linear->out,
                                      linear->packed_transposed);
}

static dl_real exp_dot(const dl_real *a, const dl_real *b, uint32_t n)
{
    dl_real sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += a[i] * b[i];
    return DL_REAL_FN(exp)(sum);
}

/* The co-occurrence MLP depends on a count of 0..W alone: one table. */
static void fill_seen(const struct dl_network *network, struct diffdyg_plan *plan)
{
    const dl_real *w0 = network->values + plan->seen_hidden.weight, *b0 = w0 + DL_SEEN_COLUMNS;
    const dl_real *w1 = network->values + plan->seen_output.weight;
    const dl_real *b1 = w1 + DL_SEEN_COLUMNS * DL_SEEN_COLUMNS;
    for (uint32_t count = 0; count <= network->config.window; count++) {
        dl_real x = DL_REAL_FN(log1p)((dl_real)count);
        dl_real *hidden = plan->seen_relu + count * DL_SEEN_COLUMNS;
        dl_real *out = plan->seen_table + count * DL_SEEN_COLUMNS;
        for (int j = 0; j < DL_SEEN_COLUMNS; j++) {
            dl_real pre = x * w0[j] + b0[j];
            hidden[j] = pre > 0 ? pre : 0;
            out[j] = b1[j];
        }
        for (int i = 0; i < DL_SEEN_COLUMNS; i++)
            for (int j = 0; j < DL_SEEN_COLUMNS; j++)
                out[j] += hidden[i] * w1[i * DL_SEEN_COLUMNS + j];
    }
}

void dl_diffdyg_update(struct dl_network *network)
{
    struct diffdyg_plan *plan = network->plan;
    const struct dl_network_config *config = &network->config;
    uint32_t d = config->width;
    pack(network, &plan->token);
    pack(network, &plan->self);
    pack(network, &plan->head[0]);
    pack(network, &plan->head[1]);
    for (uint32_t l = 0; l < config->layers; l++) {
        struct diffdyg_layer *layer = &plan->layers[l];
        pack(network, &layer->qkv);
        pack(network, &layer->output);
        pack(network, &layer->mlp[0]);
        pack(network, &layer->mlp[1]);
        if (!config->differential) continue;
        const dl_real *vectors = network->values + layer->lambda;
        uint32_t n = plan->shape.width;
        layer->lambda_terms[0] = exp_dot(vectors, vectors + n, n);
        layer->lambda_terms[1] = exp_dot(vectors + 2 * n, vectors + 3 * n, n);
        layer->lambda_value =
            layer->lambda_terms[0] - layer->lambda_terms[1] + layer->lambda_initial;
    }
    if (config->cooccurrence) fill_seen(network, plan);
    size_t encodings = plan->layout.columns - plan->layout.time;
    network->kernels->pack_transposed(d, encodings,
                                      network->values + plan->token.weight + plan->layout.time * d,
                                      d, plan->token_encodings);
}
