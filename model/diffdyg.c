/* DiffDyG (arXiv 2605.16112): window tokens with time, rotary and
 * co-occurrence encodings, pre-norm layers of differential attention and a
 * GELU feed-forward, a mean of each side, and a small head on both.
 *
 * Shapes: T tokens of all pairs of a batch (rows), n of one pair, P pairs, w
 * window tokens, d width, H heads of width d/H, D = (2·maps + 1)·d. Forward and
 * backward of each block stand side by side; a backward block names the
 * gradient of its output dy and leaves that of its input.
 *
 * For a linear layer Y = X W + b:  dX = dY Wᵀ,  dW = Xᵀ dY,  db = Σ_rows dY. */
#include "model/diffdyg.h"

#include <math.h>
#include <string.h>

/* ---- workspace --------------------------------------------------------------------- */

/* What a layer keeps for its backward pass. In inference all layers share one. */
struct kept {
    dl_real *x;                 /* (T, d) into the layer */
    dl_real *norm1, *inverse1;  /* (T, d), (T): normalised input */
    dl_real *qkv;               /* (T, D), rotated */
    dl_real *maps;              /* of each pair (H, maps, n, row of n) */
    dl_real *mixed, *inverse_o; /* (T, d), (T·H): attention output, its norms */
    dl_real *mixed_norm;        /* (T, d) */
    dl_real *middle;            /* (T, d) between the two blocks */
    dl_real *norm2, *inverse2;  /* (T, d), (T) */
    dl_real *hidden, *active;   /* (T, 2d) before and after GELU */
};

struct state {
    struct kept kept[DL_LAYERS_MAX];             /* training */
    struct kept shared;                          /* inference */
    size_t *maps_at;                             /* (P + 1): where each pair's maps start */
    dl_real *last, *last_norm, *last_inverse;    /* (T, d), (T, d), (T): after the layers */
    dl_real *window_x, *self_x;                  /* (w, d), (2P, d) */
    dl_real *angle, *cosine, *sine;              /* (w, 16) */
    dl_real *pooled, *head_hidden, *head_active; /* (P, 2d), (P, d), (P, d) */
    /* Backward. */
    dl_real *dx, *dy;         /* (T, d) */
    dl_real *dwide, *dqkv;    /* (T, 2d), (T, D) */
    dl_real *dpooled, *dhead; /* (P, 2d), (P, d) */
    dl_real *dencodings;      /* (w, 32) */
    dl_real *dseen;           /* (W + 1, 16) */
    struct dl_attention_scratch attention;
};

static void carve_kept(struct kept *kept, struct dl_carve *carve, size_t rows, size_t d,
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

static void carve(const struct dl_network *network, struct dl_workspace *workspace,
                  struct dl_carve *carve)
{
    const struct diffdyg_plan *plan = network->plan;
    const struct dl_network_config *config = &network->config;
    const size_t size = sizeof(dl_real), d = config->width;
    const size_t pairs = workspace->batch.pairs_max, rows = workspace->batch.rows_max;
    const size_t n = rows / pairs, window_rows = rows - 2 * pairs;
    const size_t map = n * dl_attention_row(n) * plan->shape.maps;
    struct state scratch = {0};
    struct state *state = dl_carve_take(carve, 1, sizeof *state);
    workspace->state = state;
    if (state == NULL) state = &scratch;
    /* Training's memory stands last, so that scoring never touches it. */
    state->maps_at = dl_carve_take(carve, pairs + 1, sizeof *state->maps_at);
    state->last = dl_carve_take(carve, rows * d, size);
    state->last_norm = dl_carve_take(carve, rows * d, size);
    state->last_inverse = dl_carve_take(carve, rows, size);
    state->window_x = dl_carve_take(carve, window_rows * d, size);
    state->self_x = dl_carve_take(carve, 2 * pairs * d, size);
    state->angle = dl_carve_take(carve, window_rows * DL_TIME_COLUMNS, size);
    state->cosine = dl_carve_take(carve, window_rows * DL_TIME_COLUMNS, size);
    state->pooled = dl_carve_take(carve, pairs * 2 * d, size);
    state->head_hidden = dl_carve_take(carve, pairs * d, size);
    state->head_active = dl_carve_take(carve, pairs * d, size);
    carve_kept(&state->shared, carve, rows, d, &plan->shape, map);
    dl_attention_carve(&state->attention, carve, &plan->shape, (uint32_t)n);
    state->sine = dl_carve_take(carve, window_rows * DL_TIME_COLUMNS, size);
    for (uint32_t l = 0; l < config->layers; l++)
        carve_kept(&state->kept[l], carve, rows, d, &plan->shape, pairs * map * plan->shape.heads);
    state->dx = dl_carve_take(carve, rows * d, size);
    state->dy = dl_carve_take(carve, rows * d, size);
    state->dwide = dl_carve_take(carve, rows * 2 * d, size);
    state->dqkv = dl_carve_take(carve, rows * plan->shape.row, size);
    state->dpooled = dl_carve_take(carve, pairs * 2 * d, size);
    state->dhead = dl_carve_take(carve, pairs * d, size);
    state->dencodings =
        dl_carve_take(carve, window_rows * (DL_TIME_COLUMNS + DL_SEEN_COLUMNS), size);
    state->dseen = dl_carve_take(carve, (config->window + 1) * DL_SEEN_COLUMNS, size);
}

/* ---- linear layers -------------------------------------------------------------------- */

/* y (rows, out) = x (rows, in) W + b, or y += that. */
static void linear_forward(const struct dl_network *network, const struct diffdyg_linear *linear,
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

/* dW += xᵀ dy, db += Σ dy, and dx = dy Wᵀ unless dx is NULL. */
static void linear_backward(const struct dl_network *network, const struct diffdyg_linear *linear,
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
                                             .n = linear->in,
                                             .k = linear->out,
                                             .a = dy,
                                             .a_row = linear->out,
                                             .a_column = 1,
                                             .b = linear->packed_transposed,
                                             .b_row = DL_PANEL,
                                             .b_panel = DL_PANEL * linear->out,
                                             .c = dx,
                                             .c_row = linear->in});
}

/* Residual dropout, forward and backward alike: keeps an element or zeroes it,
 * and scales what is kept. The mask is a function of the pair's place, the
 * layer and block, and the element's index in the pair. */
static void dropout(const struct dl_network *network, const struct dl_batch *batch,
                    const struct dl_pass *pass, uint64_t block, dl_real *x)
{
    if (!pass->has_dropout) return;
    const size_t d = network->config.width;
    const uint32_t limit = (uint32_t)((double)network->config.dropout * 65536);
    const dl_real scale = (dl_real)(65536.0 / (65536.0 - (double)limit));
    for (uint32_t p = 0; p < batch->pairs; p++) {
        uint32_t key = (uint32_t)(dl_mix64(batch->place[p] ^ dl_mix64(block + 1)) >> 32);
        size_t at = batch->start[p] * d, count = batch->start[p + 1] * d - at;
        network->kernels->dropout(count, key, limit, scale, x + at);
    }
}

/* ---- tokens ------------------------------------------------------------------------------ */

/* Fills the encodings' columns of the window tokens, maps both kinds of token
 * to the width, and sets them in sequence: x (T, d). */
static void embed_forward(const struct dl_network *network, struct dl_workspace *workspace,
                          const struct dl_pass *pass, dl_real *x)
{
    const struct diffdyg_plan *plan = network->plan;
    struct state *state = workspace->state;
    const struct dl_batch *batch = &workspace->batch;
    const size_t d = network->config.width, columns = plan->layout.columns;
    if (network->config.time_encoding) {
        const dl_real *frequency = network->values + plan->frequency;
        const dl_real *phase = network->values + plan->phase;
        for (size_t w = 0; w < batch->window_rows; w++)
            for (size_t j = 0; j < DL_TIME_COLUMNS; j++)
                state->angle[w * DL_TIME_COLUMNS + j] = frequency[j] * batch->elapsed[w] + phase[j];
        network->kernels->cos_sin(batch->window_rows * DL_TIME_COLUMNS, state->angle, state->cosine,
                                  pass ? state->sine : NULL);
        for (size_t w = 0; w < batch->window_rows; w++)
            memcpy(batch->token + w * columns + plan->layout.time,
                   state->cosine + w * DL_TIME_COLUMNS, DL_TIME_COLUMNS * sizeof(dl_real));
    }
    if (network->config.cooccurrence) {
        for (size_t w = 0; w < batch->window_rows; w++) {
            const dl_real *first = plan->seen_table + batch->seen[2 * w] * DL_SEEN_COLUMNS;
            const dl_real *second = plan->seen_table + batch->seen[2 * w + 1] * DL_SEEN_COLUMNS;
            dl_real *to = batch->token + w * columns + plan->layout.seen;
            for (size_t j = 0; j < DL_SEEN_COLUMNS; j++) to[j] = first[j] + second[j];
        }
    }
    linear_forward(network, &plan->token, batch->window_rows, batch->token, state->window_x, 0);
    linear_forward(network, &plan->self, 2 * batch->pairs, batch->self, state->self_x, 0);
    const dl_real *window_x = state->window_x, *side = network->values + plan->side;
    for (uint32_t p = 0; p < batch->pairs; p++) {
        size_t n = batch->start[p + 1] - batch->start[p];
        for (uint32_t s = 0; s < 2; s++) {
            size_t rows = s == 0 ? batch->source_rows[p] : n - batch->source_rows[p];
            memcpy(x, state->self_x + (2 * p + s) * d, d * sizeof(dl_real));
            memcpy(x + d, window_x, (rows - 1) * d * sizeof(dl_real));
            for (size_t i = 0; i < rows; i++, x += d)
                for (size_t j = 0; j < d; j++) x[j] += side[s * d + j];
            window_x += (rows - 1) * d;
        }
    }
}

/* The time encoding cos(ω t + b): dω = −Σ sin · t · dy, db = −Σ sin · dy. */
static void time_backward(const struct diffdyg_plan *plan, const struct state *state,
                          const struct dl_batch *batch, size_t row, dl_real *gradients)
{
    dl_real *dfrequency = gradients + plan->frequency, *dphase = gradients + plan->phase;
    for (size_t w = 0; w < batch->window_rows; w++) {
        for (size_t j = 0; j < DL_TIME_COLUMNS; j++) {
            dl_real d = -state->sine[w * DL_TIME_COLUMNS + j] * state->dencodings[w * row + j];
            dfrequency[j] += d * batch->elapsed[w];
            dphase[j] += d;
        }
    }
}

/* The co-occurrence MLP, E = relu(x w0 + b0) W1 + b1: the tokens' gradients are
 * gathered by count first, then go through it once for each count. */
static void seen_backward(const struct dl_network *network, const struct diffdyg_plan *plan,
                          struct state *state, const struct dl_batch *batch, const dl_real *dy,
                          size_t row, dl_real *gradients)
{
    const size_t width = DL_SEEN_COLUMNS;
    const uint32_t counts = network->config.window + 1;
    const dl_real *w1 = network->values + plan->seen_output.weight;
    dl_real *dw0 = gradients + plan->seen_hidden.weight, *db0 = dw0 + width;
    dl_real *dw1 = gradients + plan->seen_output.weight, *db1 = dw1 + width * width;
    memset(state->dseen, 0, counts * width * sizeof(dl_real));
    for (size_t w = 0; w < batch->window_rows; w++)
        for (int t = 0; t < 2; t++)
            for (size_t j = 0; j < width; j++)
                state->dseen[batch->seen[2 * w + (size_t)t] * width + j] += dy[w * row + j];
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

/* From dx (T, d). */
static void embed_backward(const struct dl_network *network, struct dl_workspace *workspace,
                           const dl_real *dx, dl_real *gradients)
{
    const struct diffdyg_plan *plan = network->plan;
    struct state *state = workspace->state;
    const struct dl_batch *batch = &workspace->batch;
    const size_t d = network->config.width;
    dl_real *window_x = state->window_x;
    for (uint32_t p = 0; p < batch->pairs; p++) {
        size_t n = batch->start[p + 1] - batch->start[p];
        for (uint32_t s = 0; s < 2; s++) {
            size_t rows = s == 0 ? batch->source_rows[p] : n - batch->source_rows[p];
            network->kernels->column_sums(rows, d, dx, d, gradients + plan->side + s * d);
            memcpy(state->self_x + (2 * p + s) * d, dx, d * sizeof(dl_real));
            memcpy(window_x, dx + d, (rows - 1) * d * sizeof(dl_real));
            window_x += (rows - 1) * d;
            dx += rows * d;
        }
    }
    linear_backward(network, &plan->self, 2 * batch->pairs, batch->self, state->self_x, NULL,
                    gradients);
    linear_backward(network, &plan->token, batch->window_rows, batch->token, state->window_x, NULL,
                    gradients);
    const size_t encodings = plan->layout.columns - plan->layout.time;
    if (encodings == 0) return;
    network->kernels->gemm(&(struct dl_gemm){.m = batch->window_rows,
                                             .n = encodings,
                                             .k = d,
                                             .a = state->window_x,
                                             .a_row = d,
                                             .a_column = 1,
                                             .b = plan->token_encodings,
                                             .b_row = DL_PANEL,
                                             .b_panel = DL_PANEL * d,
                                             .c = state->dencodings,
                                             .c_row = encodings});
    if (network->config.time_encoding) time_backward(plan, state, batch, encodings, gradients);
    if (network->config.cooccurrence)
        seen_backward(network, plan, state, batch,
                      state->dencodings + (plan->layout.seen - plan->layout.time), encodings,
                      gradients);
}

/* ---- attention block: y = x + dropout(norm_heads(attention(norm(x))) · Wo) ------------------ */

static void rotate(const struct dl_network *network, const struct dl_batch *batch, dl_real *qkv,
                   int sign)
{
    const struct diffdyg_plan *plan = network->plan;
    if (!network->config.rope) return;
    /* All of Q and K, which stand side by side. */
    network->kernels->rotate(batch->rows, 2 * (size_t)plan->shape.maps * plan->shape.heads,
                             plan->shape.width / 2, qkv, plan->shape.row, batch->position,
                             plan->cosine, plan->sine, sign);
}

static void attention_forward(const struct dl_network *network, struct dl_workspace *workspace,
                              const struct dl_pass *pass, uint32_t l, struct kept *kept,
                              const dl_real *x, dl_real *y, struct dl_attention *observed)
{
    const struct diffdyg_plan *plan = network->plan;
    const struct diffdyg_layer *layer = &plan->layers[l];
    const struct dl_attention_shape *shape = &plan->shape;
    const struct dl_kernels *kernels = network->kernels;
    const struct dl_batch *batch = &workspace->batch;
    struct state *state = workspace->state;
    const size_t d = network->config.width, rows = batch->rows;
    kernels->rmsnorm(rows, d, x, d, network->values + layer->attention_norm, 1, kept->norm1, d,
                     kept->inverse1);
    linear_forward(network, &layer->qkv, rows, kept->norm1, kept->qkv, 0);
    rotate(network, batch, kept->qkv, 1);
    for (uint32_t p = 0; p < batch->pairs; p++) {
        size_t at = batch->start[p];
        uint32_t n = batch->start[p + 1] - batch->start[p];
        dl_attention_forward(kernels, shape, layer->lambda_value, n, kept->qkv + at * shape->row,
                             kept->maps + (pass ? state->maps_at[p] : 0),
                             pass ? shape->maps * n * dl_attention_row(n) : 0, kept->mixed + at * d,
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
        linear_forward(network, &layer->output, rows, mixed, y, 1);
        return;
    }
    linear_forward(network, &layer->output, rows, mixed, y, 0);
    dropout(network, batch, pass, 2 * l, y);
    kernels->add(rows * d, x, y);
}

/* dx (T, d) holds dy on entry and dx on return: dx = dy + d(branch)/dx. */
static void attention_backward(const struct dl_network *network, struct dl_workspace *workspace,
                               const struct dl_pass *pass, uint32_t l, const struct kept *kept,
                               dl_real *dx, dl_real *gradients)
{
    const struct diffdyg_plan *plan = network->plan;
    const struct diffdyg_layer *layer = &plan->layers[l];
    const struct dl_attention_shape *shape = &plan->shape;
    const struct dl_kernels *kernels = network->kernels;
    const struct dl_batch *batch = &workspace->batch;
    struct state *state = workspace->state;
    const size_t d = network->config.width, rows = batch->rows;
    memcpy(state->dy, dx, rows * d * sizeof(dl_real));
    dropout(network, batch, pass, 2 * l, state->dy);
    dl_real *dmixed = state->dwide;
    linear_backward(network, &layer->output, rows,
                    network->config.differential ? kept->mixed_norm : kept->mixed, state->dy,
                    dmixed, gradients);
    if (network->config.differential)
        kernels->rmsnorm_backward(rows * shape->heads, shape->width, kept->mixed, shape->width,
                                  NULL, 1 - layer->lambda_initial, kept->inverse_o, dmixed,
                                  shape->width, dmixed, shape->width, 0, NULL);
    dl_real dlambda = 0;
    for (uint32_t p = 0; p < batch->pairs; p++) {
        size_t at = batch->start[p];
        uint32_t n = batch->start[p + 1] - batch->start[p];
        dlambda += dl_attention_backward(
            kernels, shape, layer->lambda_value, n, kept->qkv + at * shape->row,
            kept->maps + state->maps_at[p], shape->maps * n * dl_attention_row(n), dmixed + at * d,
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
    rotate(network, batch, state->dqkv, -1);
    linear_backward(network, &layer->qkv, rows, kept->norm1, state->dqkv, state->dy, gradients);
    kernels->rmsnorm_backward(rows, d, kept->x, d, network->values + layer->attention_norm, 1,
                              kept->inverse1, state->dy, d, dx, d, 1,
                              gradients + layer->attention_norm);
}

/* ---- feed-forward block: y = x + dropout(gelu(norm(x) W0 + b0) W1 + b1) --------------------- */

static void mlp_forward(const struct dl_network *network, struct dl_workspace *workspace,
                        const struct dl_pass *pass, uint32_t l, struct kept *kept, const dl_real *x,
                        dl_real *y)
{
    const struct diffdyg_plan *plan = network->plan;
    const struct diffdyg_layer *layer = &plan->layers[l];
    const struct dl_kernels *kernels = network->kernels;
    const struct dl_batch *batch = &workspace->batch;
    const size_t d = network->config.width, rows = batch->rows;
    kernels->rmsnorm(rows, d, x, d, network->values + layer->mlp_norm, 1, kept->norm2, d,
                     kept->inverse2);
    linear_forward(network, &layer->mlp[0], rows, kept->norm2, kept->hidden, 0);
    kernels->gelu(rows * 2 * d, kept->hidden, kept->active);
    if (pass == NULL) {
        linear_forward(network, &layer->mlp[1], rows, kept->active, y, 1);
        return;
    }
    linear_forward(network, &layer->mlp[1], rows, kept->active, y, 0);
    dropout(network, batch, pass, 2 * l + 1, y);
    kernels->add(rows * d, x, y);
}

static void mlp_backward(const struct dl_network *network, struct dl_workspace *workspace,
                         const struct dl_pass *pass, uint32_t l, const struct kept *kept,
                         dl_real *dx, dl_real *gradients)
{
    const struct diffdyg_plan *plan = network->plan;
    const struct diffdyg_layer *layer = &plan->layers[l];
    const struct dl_kernels *kernels = network->kernels;
    const struct dl_batch *batch = &workspace->batch;
    struct state *state = workspace->state;
    const size_t d = network->config.width, rows = batch->rows;
    memcpy(state->dy, dx, rows * d * sizeof(dl_real));
    dropout(network, batch, pass, 2 * l + 1, state->dy);
    linear_backward(network, &layer->mlp[1], rows, kept->active, state->dy, state->dwide,
                    gradients);
    kernels->gelu_backward(rows * 2 * d, kept->hidden, state->dwide, state->dwide);
    linear_backward(network, &layer->mlp[0], rows, kept->norm2, state->dwide, state->dy, gradients);
    kernels->rmsnorm_backward(rows, d, kept->middle, d, network->values + layer->mlp_norm, 1,
                              kept->inverse2, state->dy, d, dx, d, 1, gradients + layer->mlp_norm);
}

/* ---- head: mean of each side of norm(x), two linear layers with GELU between ----------------- */

static void head_forward(const struct dl_network *network, struct dl_workspace *workspace,
                         const dl_real *x, dl_real *logits)
{
    const struct diffdyg_plan *plan = network->plan;
    const struct dl_batch *batch = &workspace->batch;
    struct state *state = workspace->state;
    const size_t d = network->config.width;
    network->kernels->rmsnorm(batch->rows, d, x, d, network->values + plan->final_norm, 1,
                              state->last_norm, d, state->last_inverse);
    const dl_real *row = state->last_norm;
    for (uint32_t p = 0; p < batch->pairs; p++) {
        size_t n = batch->start[p + 1] - batch->start[p];
        for (uint32_t s = 0; s < 2; s++) {
            size_t rows = s == 0 ? batch->source_rows[p] : n - batch->source_rows[p];
            dl_real *mean = state->pooled + (2 * p + s) * d;
            memset(mean, 0, d * sizeof *mean);
            network->kernels->column_sums(rows, d, row, d, mean);
            for (size_t j = 0; j < d; j++) mean[j] /= (dl_real)rows;
            row += rows * d;
        }
    }
    linear_forward(network, &plan->head[0], batch->pairs, state->pooled, state->head_hidden, 0);
    network->kernels->gelu(batch->pairs * d, state->head_hidden, state->head_active);
    linear_forward(network, &plan->head[1], batch->pairs, state->head_active, logits, 0);
}

/* From workspace->dlogits (P) to dx (T, d), which is set. */
static void head_backward(const struct dl_network *network, struct dl_workspace *workspace,
                          dl_real *dx, dl_real *gradients)
{
    const struct diffdyg_plan *plan = network->plan;
    const struct dl_batch *batch = &workspace->batch;
    struct state *state = workspace->state;
    const size_t d = network->config.width;
    linear_backward(network, &plan->head[1], batch->pairs, state->head_active, workspace->dlogits,
                    state->dhead, gradients);
    network->kernels->gelu_backward(batch->pairs * d, state->head_hidden, state->dhead,
                                    state->dhead);
    linear_backward(network, &plan->head[0], batch->pairs, state->pooled, state->dhead,
                    state->dpooled, gradients);
    dl_real *row = state->dy;
    for (uint32_t p = 0; p < batch->pairs; p++) {
        size_t n = batch->start[p + 1] - batch->start[p];
        for (uint32_t s = 0; s < 2; s++) {
            size_t rows = s == 0 ? batch->source_rows[p] : n - batch->source_rows[p];
            const dl_real *dmean = state->dpooled + (2 * p + s) * d;
            for (size_t i = 0; i < rows; i++, row += d)
                for (size_t j = 0; j < d; j++) row[j] = dmean[j] / (dl_real)rows;
        }
    }
    network->kernels->rmsnorm_backward(batch->rows, d, state->last, d,
                                       network->values + plan->final_norm, 1, state->last_inverse,
                                       state->dy, d, dx, d, 0, gradients + plan->final_norm);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void forward(const struct dl_network *network, struct dl_workspace *workspace,
                    const struct dl_pass *pass, dl_real *logits, struct dl_attention *attention)
{
    struct state *state = workspace->state;
    const struct diffdyg_plan *plan = network->plan;
    const struct dl_batch *batch = &workspace->batch;
    const uint32_t layers = network->config.layers;
    if (pass == NULL) {
        /* In place: every block adds to the one stream of tokens. */
        embed_forward(network, workspace, NULL, state->last);
        for (uint32_t l = 0; l < layers; l++) {
            attention_forward(network, workspace, NULL, l, &state->shared, state->last, state->last,
                              attention);
            mlp_forward(network, workspace, NULL, l, &state->shared, state->last, state->last);
        }
        head_forward(network, workspace, state->last, logits);
        return;
    }
    state->maps_at[0] = 0;
    for (uint32_t p = 0; p < batch->pairs; p++) {
        size_t n = batch->start[p + 1] - batch->start[p];
        state->maps_at[p + 1] =
            state->maps_at[p] + plan->shape.heads * plan->shape.maps * n * dl_attention_row(n);
    }
    embed_forward(network, workspace, pass, state->kept[0].x);
    for (uint32_t l = 0; l < layers; l++) {
        struct kept *kept = &state->kept[l];
        dl_real *next = l + 1 < layers ? state->kept[l + 1].x : state->last;
        attention_forward(network, workspace, pass, l, kept, kept->x, kept->middle, attention);
        mlp_forward(network, workspace, pass, l, kept, kept->middle, next);
    }
    head_forward(network, workspace, state->last, logits);
}

static void backward(const struct dl_network *network, struct dl_workspace *workspace,
                     const struct dl_pass *pass, dl_real *gradients)
{
    struct state *state = workspace->state;
    head_backward(network, workspace, state->dx, gradients);
    for (uint32_t l = network->config.layers; l-- > 0;) {
        const struct kept *kept = &state->kept[l];
        mlp_backward(network, workspace, pass, l, kept, state->dx, gradients);
        attention_backward(network, workspace, pass, l, kept, state->dx, gradients);
    }
    embed_backward(network, workspace, state->dx, gradients);
}

const struct dl_architecture dl_architecture_diffdyg = {
    .name = "diffdyg",
    .plan_new = dl_diffdyg_plan_new,
    .plan_free = dl_diffdyg_plan_free,
    .update = dl_diffdyg_update,
    .carve = carve,
    .forward = forward,
    .backward = backward,
};
