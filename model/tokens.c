/* The maps from window tokens to vectors, forward and backward. */
#include "model/tokens.h"

#include <math.h>
#include <string.h>

#include "model/architecture.h"

/* ---- parameters ---------------------------------------------------------------- */

void dl_tokens_add_map(struct dl_token_plan *plan, struct dl_parameter_list *list,
                       const struct dl_network_config *config, uint32_t windows)
{
    plan->layout = dl_token_layout_of(config);
    plan->windows = windows;
    plan->map = dl_linear_add(list, plan->layout.columns, config->width, 1, "token");
    /* Only the encodings have parameters before the map. */
    plan->map.back_first = plan->layout.time;
    plan->map.back_count = plan->layout.columns - plan->layout.time;
}

void dl_tokens_add_encodings(struct dl_token_plan *plan, struct dl_parameter_list *list,
                             const struct dl_network_config *config)
{
    if (config->time_encoding) {
        plan->frequency = dl_parameters_add(list, 1, DL_TIME_COLUMNS, 0, DL_INITIAL_FREQUENCIES, 0,
                                            "time.frequency");
        plan->phase =
            dl_parameters_add(list, 1, DL_TIME_COLUMNS, 0, DL_INITIAL_ZERO, 0, "time.phase");
    }
    if (config->cooccurrence) {
        plan->seen[0] = dl_linear_add(list, 1, DL_SEEN_COLUMNS, 1, "cooccurrence.0");
        plan->seen[1] = dl_linear_add(list, DL_SEEN_COLUMNS, DL_SEEN_COLUMNS, 1, "cooccurrence.1");
    }
}

void dl_tokens_carve_plan(struct dl_token_plan *plan, struct dl_carve *carve,
                          const struct dl_network_config *config)
{
    const size_t counts = config->window + 1;
    dl_linear_carve(&plan->map, carve);
    plan->seen_table = dl_carve_take(carve, counts * DL_SEEN_COLUMNS, sizeof(dl_real));
    plan->seen_relu = dl_carve_take(carve, counts * DL_SEEN_COLUMNS, sizeof(dl_real));
}

/* The co-occurrence MLP depends on a count of 0..W alone: one table. */
static void fill_seen(const struct dl_network *network, struct dl_token_plan *plan)
{
    const dl_real *w0 = network->values + plan->seen[0].weight, *b0 = w0 + DL_SEEN_COLUMNS;
    const dl_real *w1 = network->values + plan->seen[1].weight;
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

void dl_tokens_update(const struct dl_network *network, struct dl_token_plan *plan)
{
    dl_linear_update(network, &plan->map);
    if (network->config.cooccurrence) fill_seen(network, plan);
}

/* ---- memory --------------------------------------------------------------------- */

void dl_tokens_carve_forward(struct dl_token_state *state, struct dl_carve *carve,
                             const struct dl_network_config *config, size_t rows)
{
    state->x = dl_carve_take(carve, rows * config->width, sizeof(dl_real));
    state->angle = dl_carve_take(carve, rows * DL_TIME_COLUMNS, sizeof(dl_real));
    state->cosine = dl_carve_take(carve, rows * DL_TIME_COLUMNS, sizeof(dl_real));
}

void dl_tokens_carve_backward(struct dl_token_state *state, struct dl_carve *carve,
                              const struct dl_network_config *config, size_t rows)
{
    state->sine = dl_carve_take(carve, rows * DL_TIME_COLUMNS, sizeof(dl_real));
    state->dencodings =
        dl_carve_take(carve, rows * (DL_TIME_COLUMNS + DL_SEEN_COLUMNS), sizeof(dl_real));
    state->dseen = dl_carve_take(carve, (config->window + 1) * DL_SEEN_COLUMNS, sizeof(dl_real));
}

/* ---- forward and backward --------------------------------------------------------- */

void dl_tokens_forward(const struct dl_network *network, const struct dl_token_plan *plan,
                       struct dl_token_state *state, size_t rows, dl_real *token,
                       const dl_real *elapsed, const uint16_t *seen, int keep)
{
    const size_t columns = plan->layout.columns;
    if (network->config.time_encoding) {
        const dl_real *frequency = network->values + plan->frequency;
        const dl_real *phase = network->values + plan->phase;
        for (size_t w = 0; w < rows; w++)
            for (size_t j = 0; j < DL_TIME_COLUMNS; j++)
                state->angle[w * DL_TIME_COLUMNS + j] = frequency[j] * elapsed[w] + phase[j];
        network->kernels->cos_sin(rows * DL_TIME_COLUMNS, state->angle, state->cosine,
                                  keep ? state->sine : NULL);
        for (size_t w = 0; w < rows; w++)
            memcpy(token + w * columns + plan->layout.time, state->cosine + w * DL_TIME_COLUMNS,
                   DL_TIME_COLUMNS * sizeof(dl_real));
    }
    for (size_t w = 0; w < rows && network->config.cooccurrence; w++) {
        dl_real *to = token + w * columns + plan->layout.seen;
        memcpy(to, plan->seen_table + seen[w * plan->windows] * DL_SEEN_COLUMNS,
               DL_SEEN_COLUMNS * sizeof *to);
        for (size_t s = 1; s < plan->windows; s++) {
            const dl_real *more = plan->seen_table + seen[w * plan->windows + s] * DL_SEEN_COLUMNS;
            for (size_t j = 0; j < DL_SEEN_COLUMNS; j++) to[j] += more[j];
        }
    }
    dl_linear_forward(network, &plan->map, rows, token, state->x, 0);
}

/* The time encoding cos(ω t + b): dω = −Σ sin · t · dy, db = −Σ sin · dy. */
static void time_backward(const struct dl_token_plan *plan, const struct dl_token_state *state,
                          size_t rows, const dl_real *elapsed, dl_real *gradients)
{
    const size_t row = plan->map.back_count;
    dl_real *dfrequency = gradients + plan->frequency, *dphase = gradients + plan->phase;
    for (size_t w = 0; w < rows; w++) {
        for (size_t j = 0; j < DL_TIME_COLUMNS; j++) {
            dl_real d = -state->sine[w * DL_TIME_COLUMNS + j] * state->dencodings[w * row + j];
            dfrequency[j] += d * elapsed[w];
            dphase[j] += d;
        }
    }
}

/* The co-occurrence MLP, E = relu(x w0 + b0) W1 + b1: the tokens' gradients are
 * gathered by count first, then go through it once for each count. */
static void seen_backward(const struct dl_network *network, const struct dl_token_plan *plan,
                          struct dl_token_state *state, size_t rows, const uint16_t *seen,
                          dl_real *gradients)
{
    const size_t width = DL_SEEN_COLUMNS, row = plan->map.back_count;
    const uint32_t counts = network->config.window + 1;
    const dl_real *w1 = network->values + plan->seen[1].weight;
    const dl_real *dy = state->dencodings + (plan->layout.seen - plan->layout.time);
    dl_real *dw0 = gradients + plan->seen[0].weight, *db0 = dw0 + width;
    dl_real *dw1 = gradients + plan->seen[1].weight, *db1 = dw1 + width * width;
    memset(state->dseen, 0, counts * width * sizeof(dl_real));
    for (size_t w = 0; w < rows; w++)
        for (size_t s = 0; s < plan->windows; s++)
            for (size_t j = 0; j < width; j++)
                state->dseen[seen[w * plan->windows + s] * width + j] += dy[w * row + j];
    for (uint32_t count = 0; count < counts; count++) {
        const dl_real *d = state->dseen + count * width, *hidden = plan->seen_relu + count * width;
        dl_real x = DL_REAL_FN(log1p)((dl_real)count);
        for (size_t j = 0; j < width; j++) db1[j] += d[j];
        for (size_t i = 0; i < width; i++) {
            dl_real back = 0;
            for (size_t j = 0; j < width; j++) {
                dw1[i * width + j] += hidden[i] * d[j];
                back += w1[i * width + j] * d[j];
            }
            if (hidden[i] <= 0) continue;
            dw0[i] += x * back;
            db0[i] += back;
        }
    }
}

void dl_tokens_backward(const struct dl_network *network, const struct dl_token_plan *plan,
                        struct dl_token_state *state, size_t rows, const dl_real *token,
                        const dl_real *elapsed, const uint16_t *seen, dl_real *gradients)
{
    const int has_encodings = plan->map.back_count > 0;
    dl_linear_backward(network, &plan->map, rows, token, state->x,
                       has_encodings ? state->dencodings : NULL, gradients);
    if (network->config.time_encoding) time_backward(plan, state, rows, elapsed, gradients);
    if (network->config.cooccurrence) seen_backward(network, plan, state, rows, seen, gradients);
}
