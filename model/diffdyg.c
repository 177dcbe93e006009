/* DiffDyG (arXiv 2605.16112): both windows of a pair in one sequence, with an
 * own token before each, through the layers; then a mean of each side and a
 * small head on both.
 *
 * Shapes: T tokens of all pairs of a batch, P pairs, w window tokens, d width. */
#include <stdlib.h>
#include <string.h>

#include "model/layers.h"
#include "model/tokens.h"

struct plan {
    struct dl_token_plan tokens;
    struct dl_layers_plan layers;
    struct dl_linear self, head[2];
    size_t side;
    void *memory;
};

struct state {
    struct dl_token_state tokens;
    struct dl_layers_state layers;
    struct dl_observed *observed; /* (P) */
    dl_real *self_x;              /* (2P, d) */
    /* Of the present query's source alone, for the pairs that share them. */
    dl_real *source_x, *source_qkv;    /* (W, d), (W, D) */
    uint32_t *source_position;         /* (W) */
    dl_real *pooled, *hidden, *active; /* (P, 2d), (P, d), (P, d) */
    dl_real *dpooled, *dhead;          /* (P, 2d), (P, d) */
};

/* ---- parameters ---------------------------------------------------------------- */

static void carve_plan(struct plan *plan, struct dl_carve *carve,
                       const struct dl_network_config *config)
{
    dl_tokens_carve_plan(&plan->tokens, carve, config);
    dl_layers_carve_plan(&plan->layers, carve, config);
    dl_linear_carve(&plan->self, carve);
    dl_linear_carve(&plan->head[0], carve);
    dl_linear_carve(&plan->head[1], carve);
}

static int plan_new(struct dl_network *network)
{
    const struct dl_network_config *config = &network->config;
    struct dl_parameter_list *list = &network->parameters;
    const uint32_t d = config->width;
    struct plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) return DL_ERR_NOMEM;
    network->plan = plan;
    dl_tokens_add_map(&plan->tokens, list, config, 2);
    plan->self = dl_linear_add(list, DL_SELF_COLUMNS, d, 1, "self");
    plan->self.back_count = 0;
    plan->side = dl_parameters_add(list, 2, d, 0, DL_INITIAL_NORMAL, 0.02, "side");
    dl_tokens_add_encodings(&plan->tokens, list, config);
    dl_layers_add(&plan->layers, list, config);
    plan->head[0] = dl_linear_add(list, 2 * d, d, 1, "head.0");
    plan->head[1] = dl_linear_add(list, d, 1, 1, "head.1");
    struct dl_carve carve = {0};
    carve_plan(plan, &carve, config);
    plan->memory = aligned_alloc(DL_CARVE_ALIGN, carve.used);
    if (plan->memory == NULL) return DL_ERR_NOMEM;
    carve = (struct dl_carve){.base = plan->memory};
    carve_plan(plan, &carve, config);
    dl_layers_start(&plan->layers, config);
    return DL_OK;
}

static void plan_free(struct dl_network *network)
{
    struct plan *plan = network->plan;
    free(plan->memory);
    free(plan);
}

static void update(struct dl_network *network)
{
    struct plan *plan = network->plan;
    dl_tokens_update(network, &plan->tokens);
    dl_layers_update(network, &plan->layers);
    dl_linear_update(network, &plan->self);
    dl_linear_update(network, &plan->head[0]);
    dl_linear_update(network, &plan->head[1]);
}

/* ---- memory --------------------------------------------------------------------- */

/* Tokens of a batch: large enough for the matrix products, small enough for the
 * second-level cache. */
static void batch_carve(const struct dl_network *network, struct dl_batch *batch,
                        struct dl_carve *carve)
{
    uint32_t rows = 2 * (network->config.window + 1);
    uint32_t pairs = rows < DL_BATCH_ROWS ? DL_BATCH_ROWS / rows : 1;
    dl_batch_carve(batch, carve, &network->config, &network->encoding, pairs, DL_BATCH_JOINT);
}

static int batch_is_full(const struct dl_network *network, const struct dl_batch *batch,
                         int training)
{
    (void)network;
    (void)training;
    return batch->pairs == batch->pairs_max;
}

static void carve(const struct dl_network *network, struct dl_workspace *workspace,
                  struct dl_carve *carve)
{
    const struct plan *plan = network->plan;
    const struct dl_network_config *config = &network->config;
    const size_t size = sizeof(dl_real), d = config->width;
    const size_t pairs = workspace->batch.pairs_max, n = 2 * ((size_t)config->window + 1);
    const size_t window_rows = pairs * 2 * config->window;
    struct state scratch = {0};
    struct state *state = dl_carve_take(carve, 1, sizeof *state);
    workspace->state = state;
    if (state == NULL) state = &scratch;
    /* Training's memory stands last, so that scoring never touches it. */
    dl_tokens_carve_forward(&state->tokens, carve, config, window_rows);
    dl_layers_carve_forward(&plan->layers, &state->layers, carve, config, pairs, n);
    state->observed = dl_carve_take(carve, pairs, sizeof *state->observed);
    state->source_x = dl_carve_take(carve, config->window * d, size);
    state->source_qkv = dl_carve_take(carve, config->window * plan->layers.shape.row, size);
    state->source_position = dl_carve_take(carve, config->window, sizeof *state->source_position);
    state->self_x = dl_carve_take(carve, 2 * pairs * d, size);
    state->pooled = dl_carve_take(carve, pairs * 2 * d, size);
    state->hidden = dl_carve_take(carve, pairs * d, size);
    state->active = dl_carve_take(carve, pairs * d, size);
    dl_tokens_carve_backward(&state->tokens, carve, config, window_rows);
    dl_layers_carve_backward(&plan->layers, &state->layers, carve, config, pairs, n);
    state->dpooled = dl_carve_take(carve, pairs * 2 * d, size);
    state->dhead = dl_carve_take(carve, pairs * d, size);
}

/* ---- tokens ------------------------------------------------------------------------------ */

/* The source's tokens as they are in every pair whose other side has nothing to
 * do with them: mapped, and projected for the first layer. Once for a query. */
static void source_forward(const struct dl_network *network, struct dl_workspace *workspace)
{
    const struct plan *plan = network->plan;
    struct state *state = workspace->state;
    struct dl_batch *batch = &workspace->batch;
    const size_t d = network->config.width;
    const dl_real *side = network->values + plan->side;
    if (!batch->carries || !batch->source_is_new) return;
    batch->source_is_new = 0;
    dl_tokens_forward(network, &plan->tokens, &state->tokens, batch->source_count,
                      batch->source_token, batch->source_elapsed, batch->plain_seen, 0);
    for (uint32_t i = 0; i < batch->source_count; i++) {
        state->source_position[i] = i + 1;
        for (size_t j = 0; j < d; j++)
            state->source_x[i * d + j] = state->tokens.x[i * d + j] + side[j];
    }
    dl_layers_project(network, &plan->layers, &state->layers, batch->source_count, state->source_x,
                      state->source_position, state->source_qkv);
}

/* Maps both kinds of token to the width and sets them in sequence: x (T, d). */
static void embed_forward(const struct dl_network *network, struct dl_workspace *workspace,
                          const struct dl_pass *pass, dl_real *x)
{
    const struct plan *plan = network->plan;
    struct state *state = workspace->state;
    const struct dl_batch *batch = &workspace->batch;
    const size_t d = network->config.width;
    dl_tokens_forward(network, &plan->tokens, &state->tokens, batch->window_rows, batch->token,
                      batch->elapsed, batch->seen, pass != NULL);
    dl_linear_forward(network, &plan->self, 2 * batch->pairs, batch->self, state->self_x, 0);
    const dl_real *window_x = state->tokens.x, *side = network->values + plan->side;
    const dl_real *earlier = batch->carries ? state->source_x : x;
    for (uint32_t p = 0; p < batch->pairs; p++) {
        size_t n = batch->start[p + 1] - batch->start[p];
        for (uint32_t s = 0; s < 2; s++) {
            size_t rows = s == 0 ? batch->source_rows[p] : n - batch->source_rows[p];
            const uint32_t *like = batch->like + batch->start[p] + s * batch->source_rows[p];
            for (size_t i = 0; i < rows; i++, x += d) {
                if (like[i] != DL_ROW_OWN) {
                    memcpy(x, earlier + like[i] * d, d * sizeof *x);
                    continue;
                }
                const dl_real *own = i == 0 ? state->self_x + (2 * p + s) * d : window_x;
                for (size_t j = 0; j < d; j++) x[j] = own[j] + side[s * d + j];
                if (i > 0) window_x += d;
            }
        }
    }
}

/* From dx (T, d), of rows of their own. */
static void embed_backward(const struct dl_network *network, struct dl_workspace *workspace,
                           const dl_real *dx, dl_real *gradients)
{
    const struct plan *plan = network->plan;
    struct state *state = workspace->state;
    const struct dl_batch *batch = &workspace->batch;
    const size_t d = network->config.width;
    dl_real *window_x = state->tokens.x;
    for (uint32_t p = 0; p < batch->pairs; p++) {
        size_t n = batch->start[p + 1] - batch->start[p];
        for (uint32_t s = 0; s < 2; s++) {
            size_t rows = s == 0 ? batch->source_rows[p] : n - batch->source_rows[p];
            const uint32_t *like = batch->like + batch->start[p] + s * batch->source_rows[p];
            dl_real *dside = gradients + plan->side + s * d, *first = window_x;
            memcpy(state->self_x + (2 * p + s) * d, dx, d * sizeof *dx);
            network->kernels->add(d, dx, dside);
            for (size_t i = 1; i < rows; i++) {
                if (like[i] != DL_ROW_OWN) continue;
                memcpy(window_x, dx + i * d, d * sizeof *dx);
                window_x += d;
            }
            network->kernels->column_sums((size_t)(window_x - first) / d, d, first, d, dside);
            dx += rows * d;
        }
    }
    dl_linear_backward(network, &plan->self, 2 * batch->pairs, batch->self, state->self_x, NULL,
                       gradients);
    dl_tokens_backward(network, &plan->tokens, &state->tokens, batch->window_rows, batch->token,
                       batch->elapsed, batch->seen, gradients);
}

/* ---- head: mean of each side, two linear layers with GELU between ------------------------ */

static void head_forward(const struct dl_network *network, struct dl_workspace *workspace,
                         dl_real *logits)
{
    const struct plan *plan = network->plan;
    const struct dl_batch *batch = &workspace->batch;
    struct state *state = workspace->state;
    const size_t d = network->config.width;
    for (size_t p = 0; p < batch->pairs; p++) {
        size_t middle = batch->start[p] + batch->source_rows[p];
        dl_layers_mean(network, &state->layers, batch->start[p], middle, state->pooled + 2 * p * d);
        dl_layers_mean(network, &state->layers, middle, batch->start[p + 1],
                       state->pooled + (2 * p + 1) * d);
    }
    dl_linear_forward(network, &plan->head[0], batch->pairs, state->pooled, state->hidden, 0);
    network->kernels->gelu(batch->pairs * d, state->hidden, state->active);
    dl_linear_forward(network, &plan->head[1], batch->pairs, state->active, logits, 0);
}

/* From workspace->dlogits (P) to the gradient of what came out of the layers. */
static void head_backward(const struct dl_network *network, struct dl_workspace *workspace,
                          dl_real *gradients)
{
    const struct plan *plan = network->plan;
    const struct dl_batch *batch = &workspace->batch;
    struct state *state = workspace->state;
    const size_t d = network->config.width;
    dl_linear_backward(network, &plan->head[1], batch->pairs, state->active, workspace->dlogits,
                       state->dhead, gradients);
    network->kernels->gelu_backward(batch->pairs * d, state->hidden, state->dhead, state->dhead);
    dl_linear_backward(network, &plan->head[0], batch->pairs, state->pooled, state->dhead,
                       state->dpooled, gradients);
    for (size_t p = 0; p < batch->pairs; p++) {
        size_t middle = batch->start[p] + batch->source_rows[p];
        dl_layers_mean_backward(network, &state->layers, batch->start[p], middle,
                                state->dpooled + 2 * p * d);
        dl_layers_mean_backward(network, &state->layers, middle, batch->start[p + 1],
                                state->dpooled + (2 * p + 1) * d);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static struct dl_sequences sequences_of(const struct dl_batch *batch, const struct state *state)
{
    return (struct dl_sequences){.count = batch->pairs,
                                 .start = batch->start,
                                 .position = batch->position,
                                 .place = batch->place,
                                 .like = batch->like,
                                 .known_qkv = batch->carries ? state->source_qkv : NULL};
}

static void forward(const struct dl_network *network, struct dl_workspace *workspace,
                    const struct dl_pass *pass, dl_real *logits, struct dl_attention *attention)
{
    const struct plan *plan = network->plan;
    struct state *state = workspace->state;
    const struct dl_sequences sequences = sequences_of(&workspace->batch, state);
    source_forward(network, workspace);
    for (uint32_t p = 0; attention && p < sequences.count; p++)
        state->observed[p] = (struct dl_observed){.attention = attention + p, .part = 1};
    embed_forward(network, workspace, pass, dl_layers_input(&state->layers, pass));
    dl_layers_forward(network, &plan->layers, &state->layers, &sequences, pass,
                      attention ? state->observed : NULL);
    head_forward(network, workspace, logits);
}

static void backward(const struct dl_network *network, struct dl_workspace *workspace,
                     const struct dl_pass *pass, dl_real *gradients)
{
    const struct plan *plan = network->plan;
    struct state *state = workspace->state;
    const struct dl_sequences sequences = sequences_of(&workspace->batch, state);
    head_backward(network, workspace, gradients);
    dl_layers_backward(network, &plan->layers, &state->layers, &sequences, pass, gradients);
    embed_backward(network, workspace, state->layers.dx, gradients);
}

const struct dl_architecture dl_architecture_diffdyg = {
    .name = "diffdyg",
    .has_layers = 1,
    .plan_new = plan_new,
    .plan_free = plan_free,
    .update = update,
    .batch_carve = batch_carve,
    .batch_is_full = batch_is_full,
    .carve = carve,
    .forward = forward,
    .backward = backward,
};
