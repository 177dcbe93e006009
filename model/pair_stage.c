/* The pair stage, forward and backward. */
#include "model/pair_stage.h"

#include <string.h>

#include "base/rng.h"

#define DROPOUT_BLOCK 64 /* apart from those of the layers */

/* ---- parameters and memory -------------------------------------------------------- */

void dl_pair_stage_add(struct dl_pair_stage *stage, struct dl_parameter_list *list,
                       const struct dl_network_config *config, size_t encoding)
{
    const size_t d = config->width;
    stage->encoding = encoding;
    stage->has_steps = config->steps;
    stage->columns = DL_READING_COLUMNS + 2 * DL_SINCE_COLUMNS;
    if (config->steps) stage->columns += DL_READING_STEPS * DL_READING_STEPPED;
    stage->linear[0] = dl_linear_add(list, 3 * encoding + stage->columns, 2 * d, 1, "pair.0");
    stage->linear[0].back_count = 3 * encoding;
    stage->linear[1] = dl_linear_add(list, 2 * d, d, 1, "pair.1");
    stage->linear[2] = dl_linear_add(list, d, 1, 1, "pair.2");
}

void dl_pair_stage_carve_plan(struct dl_pair_stage *stage, struct dl_carve *carve)
{
    for (int i = 0; i < 3; i++) dl_linear_carve(&stage->linear[i], carve);
}

void dl_pair_stage_update(const struct dl_network *network, struct dl_pair_stage *stage)
{
    for (int i = 0; i < 3; i++) dl_linear_update(network, &stage->linear[i]);
}

void dl_pair_stage_carve_forward(const struct dl_pair_stage *stage, struct dl_pair_scratch *scratch,
                                 struct dl_carve *carve, size_t pairs)
{
    const size_t size = sizeof(dl_real);
    scratch->x = dl_carve_take(carve, pairs * stage->linear[0].in, size);
    for (int i = 0; i < 2; i++) {
        scratch->hidden[i] = dl_carve_take(carve, pairs * stage->linear[i].out, size);
        scratch->active[i] = dl_carve_take(carve, pairs * stage->linear[i].out, size);
    }
}

void dl_pair_stage_carve_backward(const struct dl_pair_stage *stage,
                                  struct dl_pair_scratch *scratch, struct dl_carve *carve,
                                  size_t pairs)
{
    const size_t size = sizeof(dl_real);
    scratch->dx = dl_carve_take(carve, pairs * 3 * stage->encoding, size);
    for (int i = 0; i < 2; i++)
        scratch->dhidden[i] = dl_carve_take(carve, pairs * stage->linear[i].out, size);
}

/* ---- forward and backward ------------------------------------------------------------ */

/* Of the first hidden layer; forward and backward alike. */
static void dropout(const struct dl_network *network, const struct dl_batch *batch,
                    const struct dl_pass *pass, size_t width, dl_real *x)
{
    if (pass == NULL || !pass->has_dropout) return;
    for (uint32_t p = 0; p < batch->pairs; p++)
        dl_dropout(network, batch->place[p], DROPOUT_BLOCK, width, x + p * width);
}

static void gather(const struct dl_pair_stage *stage, const struct dl_batch *batch,
                   const dl_real *h, dl_real *x)
{
    const size_t e = stage->encoding;
    for (size_t p = 0; p < batch->pairs; p++) {
        if (e > 0) {
            const dl_real *u = h + batch->pair_sides[2 * p] * e;
            const dl_real *v = h + batch->pair_sides[2 * p + 1] * e;
            memcpy(x, u, e * sizeof *x);
            memcpy(x + e, v, e * sizeof *x);
            for (size_t j = 0; j < e; j++) x[2 * e + j] = u[j] * v[j];
            x += 3 * e;
        }
        const dl_real *self = batch->self + p * DL_READING_COLUMNS;
        memcpy(x, self, DL_READING_COLUMNS * sizeof *x);
        x += DL_READING_COLUMNS;
        if (stage->has_steps) {
            dl_reading_steps(&batch->encoding->reading, self, x);
            x += DL_READING_STEPS * DL_READING_STEPPED;
        }
        memcpy(x, batch->since + 2 * p * DL_SINCE_COLUMNS, 2 * DL_SINCE_COLUMNS * sizeof *x);
        x += 2 * DL_SINCE_COLUMNS;
    }
}

void dl_pair_stage_forward(const struct dl_network *network, const struct dl_pair_stage *stage,
                           struct dl_pair_scratch *scratch, const struct dl_batch *batch,
                           const struct dl_pass *pass, const dl_real *h, dl_real *logits)
{
    const dl_real *x = scratch->x;
    gather(stage, batch, h, scratch->x);
    for (int i = 0; i < 2; i++) {
        const size_t width = stage->linear[i].out;
        dl_linear_forward(network, &stage->linear[i], batch->pairs, x, scratch->hidden[i], 0);
        network->kernels->gelu(batch->pairs * width, scratch->hidden[i], scratch->active[i]);
        if (i == 0) dropout(network, batch, pass, width, scratch->active[0]);
        x = scratch->active[i];
    }
    dl_linear_forward(network, &stage->linear[2], batch->pairs, x, logits, 0);
}

void dl_pair_stage_backward(const struct dl_network *network, const struct dl_pair_stage *stage,
                            struct dl_pair_scratch *scratch, const struct dl_batch *batch,
                            const struct dl_pass *pass, const dl_real *h, const dl_real *dlogits,
                            dl_real *dh, dl_real *gradients)
{
    const size_t e = stage->encoding;
    const dl_real *dy = dlogits;
    for (int i = 2; i > 0; i--) {
        const size_t width = stage->linear[i].in;
        dl_real *dx = scratch->dhidden[i - 1];
        dl_linear_backward(network, &stage->linear[i], batch->pairs, scratch->active[i - 1], dy, dx,
                           gradients);
        if (i == 1) dropout(network, batch, pass, width, dx);
        network->kernels->gelu_backward(batch->pairs * width, scratch->hidden[i - 1], dx, dx);
        dy = dx;
    }
    dl_linear_backward(network, &stage->linear[0], batch->pairs, scratch->x, dy,
                       e > 0 ? scratch->dx : NULL, gradients);
    for (size_t p = 0; p < batch->pairs && e > 0; p++) {
        const size_t at[2] = {batch->pair_sides[2 * p] * e, batch->pair_sides[2 * p + 1] * e};
        const dl_real *dx = scratch->dx + p * 3 * e;
        for (size_t j = 0; j < e; j++) {
            dh[at[0] + j] += dx[j] + dx[2 * e + j] * h[at[1] + j];
            dh[at[1] + j] += dx[e + j] + dx[2 * e + j] * h[at[0] + j];
        }
    }
}
