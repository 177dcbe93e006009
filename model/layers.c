/* Transformer layers, forward and backward side by side.
 *
 * Shapes: T tokens of all sequences (rows), n of one, d width, H heads of width
 * d/H, D = (2·maps + 1)·d. A backward block names the gradient of its output dy
 * and leaves that of its input. */
#include "model/layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- parameters ---------------------------------------------------------------- */

static void add_layer(struct dl_layers_plan *plan, struct dl_parameter_list *list,
                      const struct dl_network_config *config, uint32_t index)
{
    struct dl_layer *layer = &plan->layers[index];
    uint32_t d = config->width;
    char name[4][48];
    static const char *const parts[4] = {"qkv", "output", "mlp.0", "mlp.1"};
    for (int i = 0; i < 4; i++) snprintf(name[i], sizeof name[i], "layer.%u.%s", index, parts[i]);
    layer->attention_norm =
        dl_parameters_add(list, 1, d, 0, DL_INITIAL_ONE, 0, "layer.%u.attention_norm", index);
    layer->qkv = dl_linear_add(list, d, plan->shape.row, 0, name[0]);
    if (config->differential) {
        layer->lambda = dl_parameters_add(list, 4, d / config->heads, 0, DL_INITIAL_NORMAL, 0.1,
                                          "layer.%u.lambda", index);
        layer->lambda_initial = (dl_real)(0.8 - 0.6 * exp(-0.3 * index));
    }
    layer->output = dl_linear_add(list, d, d, 0, name[1]);
    layer->mlp_norm =
        dl_parameters_add(list, 1, d, 0, DL_INITIAL_ONE, 0, "layer.%u.mlp_norm", index);
    layer->mlp[0] = dl_linear_add(list, d, 2 * d, 1, name[2]);
    layer->mlp[1] = dl_linear_add(list, 2 * d, d, 1, name[3]);
}

void dl_layers_add(struct dl_layers_plan *plan, struct dl_parameter_list *list,
                   const struct dl_network_config *config)
{
    uint32_t d = config->width, maps = config->differential ? 2 : 1;
    plan->shape = (struct dl_attention_shape){.heads = config->heads,
                                              .width = d / config->heads,
                                              .maps = maps,
                                              .row = (2 * maps + 1) * d};
    for (uint32_t l = 0; l < config->layers; l++) add_layer(plan, list, config, l);
    plan->final_norm = dl_parameters_add(list, 1, d, 0, DL_INITIAL_ONE, 0, "final_norm");
}

void dl_layers_carve_plan(struct dl_layers_plan *plan, struct dl_carve *carve,
                          const struct dl_network_config *config)
{
    const size_t angles = (config->window + 1) * (size_t)plan->shape.width / 2;
    for (uint32_t l = 0; l < config->layers; l++) {
        dl_linear_carve(&plan->layers[l].qkv, carve);
        dl_linear_carve(&plan->layers[l].output, carve);
        dl_linear_carve(&plan->layers[l].mlp[0], carve);
        dl_linear_carve(&plan->layers[l].mlp[1], carve);
    }
    plan->cosine = dl_carve_take(carve, angles, sizeof(dl_real));
    plan->sine = dl_carve_take(carve, angles, sizeof(dl_real));
}

/* Rotary angles: position · 10000^(−i / h), i < h = half a head. */
void dl_layers_start(struct dl_layers_plan *plan, const struct dl_network_config *config)
{
    size_t h = plan->shape.width / 2;
    for (size_t p = 0; p <= config->window; p++) {
        for (size_t i = 0; i < h; i++) {
            double angle = (double)p * pow(10000, -(double)i / (double)h);
            plan->cosine[p * h + i] = (dl_real)cos(angle);
            plan->sine[p * h + i] = (dl_real)sin(angle);
        }
    }
}

static dl_real exp_dot(const dl_real *a, const dl_real *b, uint32_t n)
{
    dl_real sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += a[i] * b[i];
    return DL_REAL_FN(exp)(sum);
}

void dl_layers_update(const struct dl_network *network, struct dl_layers_plan *plan)
{
    const struct dl_network_config *config = &network->config;
    const uint32_t n = plan->shape.width;
    for (uint32_t l = 0; l < config->layers; l++) {
        struct dl_layer *layer = &plan->layers[l];
        dl_linear_update(network, &layer->qkv);
        dl_linear_update(network, &layer->output);
        dl_linear_update(network, &layer->mlp[0]);
        dl_linear_update(network, &layer->mlp[1]);
        if (!config->differential) continue;
        const dl_real *vectors = network->values + layer->lambda;
        layer->lambda_terms[0] = exp_dot(vectors, vectors + n, n);
        layer->lambda_terms[1] = exp_dot(vectors + 2 * n, vectors + 3 * n, n);
        layer->lambda_value =
            layer->lambda_terms[0] - layer->lambda_terms[1] + layer->lambda_initial;
    }
}

/* ---- memory --------------------------------------------------------------------- */

static void carve_kept(struct dl_layer_kept *kept, struct dl_carve *carve, size_t rows, size_t d,
                       const struct dl_attention_shape *shape, size_t maps)
{
    const size_t size = sizeof(dl_real);
    kept->norm1 = dl_carve_take(carve, rows * d, size);
    kept->inverse1 = dl_carve_take(carve, rows, size);
    kept->qkv = dl_carve_take(carve, rows * shape->row, size);
    kept->mixed = dl_carve_take(carve, rows * d, size);
    kept->inverse_o = dl_carve_take(carve, rows * shape->heads, size);
    kept->mixed_norm = dl_carve_take(carve, rows * d, size);
    kept->norm2 = dl_carve_take(carve, rows * d, size);
    kept->inverse2 = dl_carve_take(carve, rows, size);
    kept->hidden = dl_carve_take(carve, rows * 2 * d, size);
    kept->active = dl_carve_take(carve, rows * 2 * d, size);
    kept->x = dl_carve_take(carve, rows * d, size);
    kept->middle = dl_carve_take(carve, rows * d, size);
    kept->maps = dl_carve_take(carve, maps, size);
}

void dl_layers_carve_forward(const struct dl_layers_plan *plan, struct dl_layers_state *state,
                             struct dl_carve *carve, const struct dl_network_config *config,
                             size_t sequences, size_t n)
{
    const size_t size = sizeof(dl_real), d = config->width, rows = sequences * n;
    state->last = dl_carve_take(carve, rows * d, size);
    state->y = dl_carve_take(carve, rows * d, size);
    state->inverse = dl_carve_take(carve, rows, size);
    carve_kept(&state->shared, carve, rows, d, &plan->shape, dl_attention_maps(&plan->shape, n));
    dl_attention_carve(&state->attention, carve, &plan->shape, (uint32_t)n);
}

void dl_layers_carve_backward(const struct dl_layers_plan *plan, struct dl_layers_state *state,
                              struct dl_carve *carve, const struct dl_network_config *config,
                              size_t sequences, size_t n)
{
    const size_t size = sizeof(dl_real), d = config->width, rows = sequences * n;
    const size_t maps = dl_attention_maps(&plan->shape, n) * plan->shape.heads;
    state->maps_at = dl_carve_take(carve, sequences + 1, sizeof *state->maps_at);
    for (uint32_t l = 0; l < config->layers; l++)
        carve_kept(&state->kept[l], carve, rows, d, &plan->shape, sequences * maps);
    state->dx = dl_carve_take(carve, rows * d, size);
    state->dy = dl_carve_take(carve, rows * d, size);
    state->dwide = dl_carve_take(carve, rows * 2 * d, size);
    state->dqkv = dl_carve_take(carve, rows * plan->shape.row, size);
}

static void dropout(const struct dl_network *network, const struct dl_sequences *sequences,
                    const struct dl_pass *pass, uint64_t block, dl_real *x)
{
    const size_t d = network->config.width;
    for (uint32_t p = 0; p < sequences->count && pass->has_dropout; p++) {
        size_t at = sequences->start[p] * d, end = sequences->start[p + 1] * d;
        dl_dropout(network, sequences->place[p], block, end - at, x + at);
    }
}

/* ---- attention block: y = x + dropout(norm_heads(attention(norm(x))) · Wo) ------------------ */

static void rotate(const struct dl_network *network, const struct dl_layers_plan *plan, size_t rows,
                   const uint32_t *position, dl_real *qkv, int sign)
{
    if (!network->config.rope) return;
    /* All of Q and K, which stand side by side. */
    network->kernels->rotate(rows, 2 * (size_t)plan->shape.maps * plan->shape.heads,
                             plan->shape.width / 2, qkv, plan->shape.row, position, plan->cosine,
                             plan->sine, sign);
}

/* Rows [first, first + rows): norm, projection, rotation. */
static void project(const struct dl_network *network, const struct dl_layers_plan *plan, uint32_t l,
                    struct dl_layer_kept *kept, size_t first, size_t rows, const dl_real *x,
                    const uint32_t *position)
{
    const struct dl_layer *layer = &plan->layers[l];
    const size_t d = network->config.width, at = first * d;
    dl_real *qkv = kept->qkv + first * plan->shape.row;
    network->kernels->rmsnorm(rows, d, x + at, d, network->values + layer->attention_norm, 1,
                              kept->norm1 + at, d, kept->inverse1 + first);
    dl_linear_forward(network, &layer->qkv, rows, kept->norm1 + at, qkv, 0);
    rotate(network, plan, rows, position + first, qkv, 1);
}

void dl_layers_project(const struct dl_network *network, const struct dl_layers_plan *plan,
                       struct dl_layers_state *state, size_t rows, const dl_real *x,
                       const uint32_t *position, dl_real *qkv)
{
    project(network, plan, 0, &state->shared, 0, rows, x, position);
    memcpy(qkv, state->shared.qkv, rows * plan->shape.row * sizeof *qkv);
}

/* The next rows after *end that are like no other: [*first, *end), empty at last. */
static int next_own(const uint32_t *like, size_t rows, size_t *first, size_t *end)
{
    size_t i = *end;
    while (i < rows && like && like[i] != DL_ROW_OWN) i++;
    *first = i;
    while (i < rows && !(like && like[i] != DL_ROW_OWN)) i++;
    *end = i;
    return *end > *first;
}

static void project_own(const struct dl_network *network, const struct dl_layers_plan *plan,
                        uint32_t l, struct dl_layer_kept *kept,
                        const struct dl_sequences *sequences, const dl_real *x)
{
    const size_t rows = sequences->start[sequences->count], row = plan->shape.row;
    const uint32_t *like = l == 0 ? sequences->like : NULL;
    const dl_real *known = sequences->known_qkv ? sequences->known_qkv : kept->qkv;
    for (size_t first, end = 0; next_own(like, rows, &first, &end);)
        project(network, plan, l, kept, first, end - first, x, sequences->position);
    for (size_t i = 0; i < rows && like; i++)
        if (like[i] != DL_ROW_OWN)
            memcpy(kept->qkv + i * row, known + like[i] * row, row * sizeof *known);
}

static void attention_forward(const struct dl_network *network, const struct dl_layers_plan *plan,
                              struct dl_layers_state *state, const struct dl_sequences *sequences,
                              const struct dl_pass *pass, uint32_t l, struct dl_layer_kept *kept,
                              const dl_real *x, dl_real *y, const struct dl_observed *observed)
{
    const struct dl_layer *layer = &plan->layers[l];
    const struct dl_attention_shape *shape = &plan->shape;
    const struct dl_kernels *kernels = network->kernels;
    const size_t d = network->config.width, rows = sequences->start[sequences->count];
    project_own(network, plan, l, kept, sequences, x);
    for (uint32_t p = 0; p < sequences->count; p++) {
        size_t at = sequences->start[p];
        uint32_t n = sequences->start[p + 1] - sequences->start[p];
        dl_attention_forward(kernels, shape, layer->lambda_value, n, kept->qkv + at * shape->row,
                             kept->maps + (pass ? state->maps_at[p] : 0),
                             pass ? dl_attention_maps(shape, n) : 0, kept->mixed + at * d,
                             &state->attention, observed ? observed + p : NULL, l);
    }
    const dl_real *mixed = kept->mixed;
    if (network->config.differential) {
        kernels->rmsnorm(rows * shape->heads, shape->width, mixed, shape->width, NULL,
                         1 - layer->lambda_initial, kept->mixed_norm, shape->width,
                         kept->inverse_o);
        mixed = kept->mixed_norm;
    }
    if (pass == NULL) { /* x and y are one */
        dl_linear_forward(network, &layer->output, rows, mixed, y, 1);
        return;
    }
    dl_linear_forward(network, &layer->output, rows, mixed, y, 0);
    dropout(network, sequences, pass, 2 * l, y);
    kernels->add(rows * d, x, y);
}

/* From state->dqkv, which it destroys, to dx, which is added to. */
static void project_backward(const struct dl_network *network, const struct dl_layers_plan *plan,
                             struct dl_layers_state *state, const struct dl_sequences *sequences,
                             uint32_t l, const struct dl_layer_kept *kept, dl_real *dx,
                             dl_real *gradients)
{
    const struct dl_layer *layer = &plan->layers[l];
    const struct dl_kernels *kernels = network->kernels;
    const uint32_t *like = l == 0 ? sequences->like : NULL;
    const size_t d = network->config.width, row = plan->shape.row;
    const size_t rows = sequences->start[sequences->count];
    for (size_t i = 0; i < rows && like; i++) {
        if (like[i] == DL_ROW_OWN) continue;
        kernels->add(row, state->dqkv + i * row, state->dqkv + like[i] * row);
        kernels->add(d, dx + i * d, dx + like[i] * d);
    }
    for (size_t first, end = 0; next_own(like, rows, &first, &end);) {
        const size_t count = end - first, at = first * d;
        dl_real *dqkv = state->dqkv + first * row, *dnorm = state->dy + at;
        rotate(network, plan, count, sequences->position + first, dqkv, -1);
        dl_linear_backward(network, &layer->qkv, count, kept->norm1 + at, dqkv, dnorm, gradients);
        kernels->rmsnorm_backward(
            count, d, kept->x + at, d, network->values + layer->attention_norm, 1,
            kept->inverse1 + first, dnorm, d, dx + at, d, 1, gradients + layer->attention_norm);
    }
}

/* dx (T, d) holds dy on entry and dx on return: dx = dy + d(branch)/dx. */
static void attention_backward(const struct dl_network *network, const struct dl_layers_plan *plan,
                               struct dl_layers_state *state, const struct dl_sequences *sequences,
                               const struct dl_pass *pass, uint32_t l,
                               const struct dl_layer_kept *kept, dl_real *dx, dl_real *gradients)
{
    const struct dl_layer *layer = &plan->layers[l];
    const struct dl_attention_shape *shape = &plan->shape;
    const struct dl_kernels *kernels = network->kernels;
    const size_t d = network->config.width, rows = sequences->start[sequences->count];
    memcpy(state->dy, dx, rows * d * sizeof(dl_real));
    dropout(network, sequences, pass, 2 * l, state->dy);
    dl_real *dmixed = state->dwide;
    dl_linear_backward(network, &layer->output, rows,
                       network->config.differential ? kept->mixed_norm : kept->mixed, state->dy,
                       dmixed, gradients);
    if (network->config.differential)
        kernels->rmsnorm_backward(rows * shape->heads, shape->width, kept->mixed, shape->width,
                                  NULL, 1 - layer->lambda_initial, kept->inverse_o, dmixed,
                                  shape->width, dmixed, shape->width, 0, NULL);
    dl_real dlambda = 0;
    for (uint32_t p = 0; p < sequences->count; p++) {
        size_t at = sequences->start[p];
        uint32_t n = sequences->start[p + 1] - sequences->start[p];
        dlambda += dl_attention_backward(
            kernels, shape, layer->lambda_value, n, kept->qkv + at * shape->row,
            kept->maps + state->maps_at[p], dl_attention_maps(shape, n), dmixed + at * d,
            state->dqkv + at * shape->row, &state->attention);
    }
    if (network->config.differential) {
        /* λ = exp(a·b) − exp(c·e) + λ0 */
        const dl_real *v = network->values + layer->lambda;
        dl_real *g = gradients + layer->lambda;
        uint32_t w = shape->width;
        for (uint32_t i = 0; i < w; i++) {
            g[i] += dlambda * layer->lambda_terms[0] * v[w + i];
            g[w + i] += dlambda * layer->lambda_terms[0] * v[i];
            g[2 * w + i] -= dlambda * layer->lambda_terms[1] * v[3 * w + i];
            g[3 * w + i] -= dlambda * layer->lambda_terms[1] * v[2 * w + i];
        }
    }
    project_backward(network, plan, state, sequences, l, kept, dx, gradients);
}

/* ---- feed-forward block: y = x + dropout(gelu(norm(x) W0 + b0) W1 + b1) --------------------- */

static void mlp_forward(const struct dl_network *network, const struct dl_layers_plan *plan,
                        const struct dl_sequences *sequences, const struct dl_pass *pass,
                        uint32_t l, struct dl_layer_kept *kept, const dl_real *x, dl_real *y)
{
    const struct dl_layer *layer = &plan->layers[l];
    const struct dl_kernels *kernels = network->kernels;
    const size_t d = network->config.width, rows = sequences->start[sequences->count];
    kernels->rmsnorm(rows, d, x, d, network->values + layer->mlp_norm, 1, kept->norm2, d,
                     kept->inverse2);
    dl_linear_forward(network, &layer->mlp[0], rows, kept->norm2, kept->hidden, 0);
    kernels->gelu(rows * 2 * d, kept->hidden, kept->active);
    if (pass == NULL) {
        dl_linear_forward(network, &layer->mlp[1], rows, kept->active, y, 1);
        return;
    }
    dl_linear_forward(network, &layer->mlp[1], rows, kept->active, y, 0);
    dropout(network, sequences, pass, 2 * l + 1, y);
    kernels->add(rows * d, x, y);
}

static void mlp_backward(const struct dl_network *network, const struct dl_layers_plan *plan,
                         struct dl_layers_state *state, const struct dl_sequences *sequences,
                         const struct dl_pass *pass, uint32_t l, const struct dl_layer_kept *kept,
                         dl_real *dx, dl_real *gradients)
{
    const struct dl_layer *layer = &plan->layers[l];
    const struct dl_kernels *kernels = network->kernels;
    const size_t d = network->config.width, rows = sequences->start[sequences->count];
    memcpy(state->dy, dx, rows * d * sizeof(dl_real));
    dropout(network, sequences, pass, 2 * l + 1, state->dy);
    dl_linear_backward(network, &layer->mlp[1], rows, kept->active, state->dy, state->dwide,
                       gradients);
    kernels->gelu_backward(rows * 2 * d, kept->hidden, state->dwide, state->dwide);
    dl_linear_backward(network, &layer->mlp[0], rows, kept->norm2, state->dwide, state->dy,
                       gradients);
    kernels->rmsnorm_backward(rows, d, kept->middle, d, network->values + layer->mlp_norm, 1,
                              kept->inverse2, state->dy, d, dx, d, 1, gradients + layer->mlp_norm);
}

/* ---- the stack ------------------------------------------------------------------------------- */

dl_real *dl_layers_input(struct dl_layers_state *state, const struct dl_pass *pass)
{
    return pass ? state->kept[0].x : state->last;
}

void dl_layers_forward(const struct dl_network *network, const struct dl_layers_plan *plan,
                       struct dl_layers_state *state, const struct dl_sequences *sequences,
                       const struct dl_pass *pass, const struct dl_observed *observed)
{
    const uint32_t layers = network->config.layers;
    const size_t d = network->config.width, rows = sequences->start[sequences->count];
    if (pass == NULL) {
        /* In place: every block adds to the one stream of tokens. */
        for (uint32_t l = 0; l < layers; l++) {
            attention_forward(network, plan, state, sequences, NULL, l, &state->shared, state->last,
                              state->last, observed);
            mlp_forward(network, plan, sequences, NULL, l, &state->shared, state->last,
                        state->last);
        }
    } else {
        state->maps_at[0] = 0;
        for (uint32_t p = 0; p < sequences->count; p++) {
            size_t n = sequences->start[p + 1] - sequences->start[p];
            state->maps_at[p + 1] =
                state->maps_at[p] + plan->shape.heads * dl_attention_maps(&plan->shape, n);
        }
        for (uint32_t l = 0; l < layers; l++) {
            struct dl_layer_kept *kept = &state->kept[l];
            dl_real *next = l + 1 < layers ? state->kept[l + 1].x : state->last;
            attention_forward(network, plan, state, sequences, pass, l, kept, kept->x, kept->middle,
                              observed);
            mlp_forward(network, plan, sequences, pass, l, kept, kept->middle, next);
        }
    }
    network->kernels->rmsnorm(rows, d, state->last, d, network->values + plan->final_norm, 1,
                              state->y, d, state->inverse);
}

void dl_layers_backward(const struct dl_network *network, const struct dl_layers_plan *plan,
                        struct dl_layers_state *state, const struct dl_sequences *sequences,
                        const struct dl_pass *pass, dl_real *gradients)
{
    const size_t d = network->config.width, rows = sequences->start[sequences->count];
    network->kernels->rmsnorm_backward(rows, d, state->last, d, network->values + plan->final_norm,
                                       1, state->inverse, state->dy, d, state->dx, d, 0,
                                       gradients + plan->final_norm);
    for (uint32_t l = network->config.layers; l-- > 0;) {
        const struct dl_layer_kept *kept = &state->kept[l];
        mlp_backward(network, plan, state, sequences, pass, l, kept, state->dx, gradients);
        attention_backward(network, plan, state, sequences, pass, l, kept, state->dx, gradients);
    }
}

void dl_layers_mean(const struct dl_network *network, const struct dl_layers_state *state,
                    size_t first, size_t end, dl_real *mean)
{
    const size_t d = network->config.width;
    memset(mean, 0, d * sizeof *mean);
    if (first == end) return;
    network->kernels->column_sums(end - first, d, state->y + first * d, d, mean);
    for (size_t j = 0; j < d; j++) mean[j] /= (dl_real)(end - first);
}

void dl_layers_mean_backward(const struct dl_network *network, struct dl_layers_state *state,
                             size_t first, size_t end, const dl_real *dmean)
{
    const size_t d = network->config.width;
    dl_real *row = state->dy + first * d;
    for (size_t i = first; i < end; i++, row += d)
        for (size_t j = 0; j < d; j++) row[j] = dmean[j] / (dl_real)(end - first);
}
