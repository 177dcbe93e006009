/* The two-stage models. `diffdyg-cached`: each node's window goes through the
 * layers by itself, told as of its newest event and knowing nothing of the other
 * endpoint, so that the mean of what comes out serves every pair until the
 * window changes; the pair stage does the rest. `mlp`: the pair stage alone.
 *
 * Shapes: S windows of a batch, each named once; P pairs; T tokens; d width. A
 * window without events has no tokens and encodes to zeros. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/layers.h"
#include "model/pair_stage.h"
#include "model/tokens.h"

#define PAIRS_MAX 64 /* of a batch: enough for the pair stage's matrix products */

struct plan {
    struct dl_token_plan tokens;
    struct dl_layers_plan layers;
    struct dl_pair_stage pair;
    void *memory;
};

struct state {
    /* Of the windows that are encoded together. */
    dl_real *token, *elapsed;     /* (T, columns), (T) */
    uint16_t *seen;               /* (T) */
    uint32_t *start;              /* (group + 1) */
    uint32_t *position;           /* (T) */
    uint64_t *place;              /* (group) */
    struct dl_observed *observed; /* (group) */
    struct dl_token_state tokens;
    struct dl_layers_state layers;
    struct dl_pair_scratch pair;
    uint32_t *which; /* (S): windows to encode */
    dl_real *h, *dh; /* (S, d) */
};

static int has_encoder(const struct dl_network *network)
{
    return network->architecture->has_layers;
}

/* How many windows go through the layers together. */
static uint32_t group_of(const struct dl_network_config *config)
{
    uint32_t group = DL_BATCH_ROWS / config->window;
    return group < 2 ? 2 : group < 2 * PAIRS_MAX ? group : 2 * PAIRS_MAX;
}

/* ---- parameters ---------------------------------------------------------------- */

static void carve_plan(const struct dl_network *network, struct plan *plan, struct dl_carve *carve)
{
    if (has_encoder(network)) {
        dl_tokens_carve_plan(&plan->tokens, carve, &network->config);
        dl_layers_carve_plan(&plan->layers, carve, &network->config);
    }
    dl_pair_stage_carve_plan(&plan->pair, carve);
}

static int plan_new(struct dl_network *network)
{
    const struct dl_network_config *config = &network->config;
    struct dl_parameter_list *list = &network->parameters;
    struct plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) return DL_ERR_NOMEM;
    network->plan = plan;
    if (has_encoder(network)) {
        dl_tokens_add_map(&plan->tokens, list, config, 1);
        dl_tokens_add_encodings(&plan->tokens, list, config);
        dl_layers_add(&plan->layers, list, config);
    }
    dl_pair_stage_add(&plan->pair, list, config, has_encoder(network) ? config->width : 0);
    struct dl_carve carve = {0};
    carve_plan(network, plan, &carve);
    plan->memory = aligned_alloc(DL_CARVE_ALIGN, carve.used);
    if (plan->memory == NULL) return DL_ERR_NOMEM;
    carve = (struct dl_carve){.base = plan->memory};
    carve_plan(network, plan, &carve);
    if (has_encoder(network)) dl_layers_start(&plan->layers, config);
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
    if (has_encoder(network)) {
        dl_tokens_update(network, &plan->tokens);
        dl_layers_update(network, &plan->layers);
    }
    dl_pair_stage_update(network, &plan->pair);
}

/* ---- memory --------------------------------------------------------------------- */

static void batch_carve(const struct dl_network *network, struct dl_batch *batch,
                        struct dl_carve *carve)
{
    dl_batch_carve(batch, carve, &network->config, &network->encoding, PAIRS_MAX, DL_BATCH_APART);
}

/* Backward needs all that forward computed, so a batch of training holds one
 * group of windows, and a pair may bring two more. */
static int batch_is_full(const struct dl_network *network, const struct dl_batch *batch,
                         int training)
{
    if (batch->pairs == batch->pairs_max) return 1;
    return training && has_encoder(network) && batch->sides + 2 > group_of(&network->config);
}

static void carve(const struct dl_network *network, struct dl_workspace *workspace,
                  struct dl_carve *carve)
{
    const struct plan *plan = network->plan;
    const struct dl_network_config *config = &network->config;
    const size_t size = sizeof(dl_real), d = config->width, sides = 2 * PAIRS_MAX;
    const size_t group = group_of(config), window = config->window, rows = group * window;
    struct state scratch = {0};
    struct state *state = dl_carve_take(carve, 1, sizeof *state);
    workspace->state = state;
    if (state == NULL) state = &scratch;
    /* Training's memory stands last, so that scoring never touches it. */
    dl_pair_stage_carve_forward(&plan->pair, &state->pair, carve, PAIRS_MAX);
    if (has_encoder(network)) {
        state->token = dl_carve_take(carve, rows * plan->tokens.layout.columns, size);
        state->elapsed = dl_carve_take(carve, rows, size);
        state->seen = dl_carve_take(carve, rows, sizeof *state->seen);
        state->start = dl_carve_take(carve, group + 1, sizeof *state->start);
        state->position = dl_carve_take(carve, rows, sizeof *state->position);
        state->place = dl_carve_take(carve, group, sizeof *state->place);
        state->observed = dl_carve_take(carve, group, sizeof *state->observed);
        state->which = dl_carve_take(carve, sides, sizeof *state->which);
        state->h = dl_carve_take(carve, sides * d, size);
        dl_tokens_carve_forward(&state->tokens, carve, config, rows);
        dl_layers_carve_forward(&plan->layers, &state->layers, carve, config, group, window);
        state->dh = dl_carve_take(carve, sides * d, size);
        dl_tokens_carve_backward(&state->tokens, carve, config, rows);
        dl_layers_carve_backward(&plan->layers, &state->layers, carve, config, group, window);
    }
    dl_pair_stage_carve_backward(&plan->pair, &state->pair, carve, PAIRS_MAX);
}

/* ---- the encoder ---------------------------------------------------------------------- */

static struct dl_sequences sequences_of(const struct state *state, uint32_t count)
{
    return (struct dl_sequences){
        .count = count, .start = state->start, .position = state->position, .place = state->place};
}

/* Encodes `count` windows of the batch to state->h. */
static void encode(const struct dl_network *network, struct dl_workspace *workspace,
                   const struct dl_pass *pass, const uint32_t *which, uint32_t count,
                   const struct dl_observed *observed)
{
    const struct plan *plan = network->plan;
    struct state *state = workspace->state;
    const struct dl_batch *batch = &workspace->batch;
    const size_t d = network->config.width;
    const struct dl_sequences sequences = sequences_of(state, count);
    uint32_t rows = 0;
    state->start[0] = 0;
    for (uint32_t s = 0; s < count; s++) {
        const struct dl_batch_side *side = &batch->side[which[s]];
        uint32_t n = dl_batch_window(batch, side, state->token + rows * plan->tokens.layout.columns,
                                     state->elapsed + rows, state->seen + rows);
        for (uint32_t i = 0; i < n; i++) state->position[rows + i] = i;
        rows += n;
        state->start[s + 1] = rows;
        state->place[s] = side->place;
    }
    dl_tokens_forward(network, &plan->tokens, &state->tokens, rows, state->token, state->elapsed,
                      state->seen, pass != NULL);
    memcpy(dl_layers_input(&state->layers, pass), state->tokens.x, rows * d * sizeof(dl_real));
    dl_layers_forward(network, &plan->layers, &state->layers, &sequences, pass, observed);
    for (uint32_t s = 0; s < count; s++)
        dl_layers_mean(network, &state->layers, state->start[s], state->start[s + 1],
                       state->h + which[s] * d);
}

/* From state->dh (sides, d), after one group was all of the batch. */
static void encode_backward(const struct dl_network *network, struct dl_workspace *workspace,
                            const struct dl_pass *pass, dl_real *gradients)
{
    const struct plan *plan = network->plan;
    struct state *state = workspace->state;
    const uint32_t count = workspace->batch.sides;
    const size_t d = network->config.width;
    const struct dl_sequences sequences = sequences_of(state, count);
    const size_t rows = state->start[count];
    for (uint32_t s = 0; s < count; s++)
        dl_layers_mean_backward(network, &state->layers, state->start[s], state->start[s + 1],
                                state->dh + s * d);
    dl_layers_backward(network, &plan->layers, &state->layers, &sequences, pass, gradients);
    memcpy(state->tokens.x, state->layers.dx, rows * d * sizeof(dl_real));
    dl_tokens_backward(network, &plan->tokens, &state->tokens, rows, state->token, state->elapsed,
                       state->seen, gradients);
}

/* Encodes both windows of each pair once more, for the attention in them. */
static void observe(const struct dl_network *network, struct dl_workspace *workspace,
                    struct dl_attention *attention)
{
    struct state *state = workspace->state;
    const struct dl_batch *batch = &workspace->batch;
    for (uint32_t p = 0; p < batch->pairs; p++) {
        const uint32_t rows[2] = {batch->source_rows[p] - 1,
                                  batch->tokens[p] - batch->source_rows[p] - 1};
        for (uint32_t s = 0; s < 2; s++) {
            if (rows[s] == 0) continue;
            state->observed[0] =
                (struct dl_observed){.attention = &attention[p],
                                     .first = s == 0 ? 1 : batch->source_rows[p] + 1,
                                     .part = rows[1 - s] == 0 ? 1 : 0.5};
            encode(network, workspace, NULL, &batch->pair_sides[2 * p + s], 1, state->observed);
        }
    }
}

/* What the window's query carries for it, or NULL. */
static float *carried(const struct dl_network *network, const struct dl_batch_side *side)
{
    return side->query->encoding_width == network->config.width ? side->side->encoding : NULL;
}

/* Encodes all windows of the batch, in groups, but for those whose encoding is
 * known; and lets the query know those that were not. */
static void encode_all(const struct dl_network *network, struct dl_workspace *workspace,
                       const struct dl_pass *pass)
{
    struct state *state = workspace->state;
    const struct dl_batch *batch = &workspace->batch;
    const uint32_t group = group_of(&network->config);
    const size_t d = network->config.width;
    uint32_t count = 0;
    for (uint32_t s = 0; s < batch->sides; s++) {
        const float *known = pass ? NULL : carried(network, &batch->side[s]);
        if (known && !isnan(known[0]))
            for (size_t j = 0; j < d; j++) state->h[s * d + j] = (dl_real)known[j];
        else
            state->which[count++] = s;
    }
    for (uint32_t first = 0; first < count; first += group) {
        uint32_t left = count - first;
        encode(network, workspace, pass, state->which + first, left < group ? left : group, NULL);
    }
    for (uint32_t i = 0; i < count && pass == NULL; i++) {
        const uint32_t s = state->which[i];
        float *known = carried(network, &batch->side[s]);
        for (size_t j = 0; j < d && known; j++) known[j] = (float)state->h[s * d + j];
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void forward(const struct dl_network *network, struct dl_workspace *workspace,
                    const struct dl_pass *pass, dl_real *logits, struct dl_attention *attention)
{
    const struct plan *plan = network->plan;
    struct state *state = workspace->state;
    if (has_encoder(network)) encode_all(network, workspace, pass);
    if (attention && has_encoder(network)) observe(network, workspace, attention);
    dl_pair_stage_forward(network, &plan->pair, &state->pair, &workspace->batch, pass, state->h,
                          logits);
}

static void backward(const struct dl_network *network, struct dl_workspace *workspace,
                     const struct dl_pass *pass, dl_real *gradients)
{
    const struct plan *plan = network->plan;
    struct state *state = workspace->state;
    const struct dl_batch *batch = &workspace->batch;
    if (has_encoder(network))
        memset(state->dh, 0, batch->sides * network->config.width * sizeof(dl_real));
    dl_pair_stage_backward(network, &plan->pair, &state->pair, batch, pass, state->h,
                           workspace->dlogits, state->dh, gradients);
    if (has_encoder(network)) encode_backward(network, workspace, pass, gradients);
}

const struct dl_architecture dl_architecture_diffdyg_cached = {
    .name = "diffdyg-cached",
    .has_layers = 1,
    .keeps_encodings = 1,
    .plan_new = plan_new,
    .plan_free = plan_free,
    .update = update,
    .batch_carve = batch_carve,
    .batch_is_full = batch_is_full,
    .carve = carve,
    .forward = forward,
    .backward = backward,
};

const struct dl_architecture dl_architecture_mlp = {
    .name = "mlp",
    .plan_new = plan_new,
    .plan_free = plan_free,
    .update = update,
    .batch_carve = batch_carve,
    .batch_is_full = batch_is_full,
    .carve = carve,
    .forward = forward,
    .backward = backward,
};
