/* AdamW over the network's parameter tensors. */
#include <math.h>
#include <stdlib.h>

#include "model/architecture.h"
#include "model/optimizer.h"

struct dl_adamw {
    uint64_t step;
    dl_real *m, *v; /* (parameter_count) */
};

int dl_adamw_new(const struct dl_network *network, struct dl_adamw **adamw)
{
    *adamw = NULL;
    struct dl_adamw *made = calloc(1, sizeof *made);
    if (made == NULL) return DL_ERR_NOMEM;
    made->m = calloc(network->parameters.total, sizeof *made->m);
    made->v = calloc(network->parameters.total, sizeof *made->v);
    if (made->m == NULL || made->v == NULL) {
        dl_adamw_free(made);
        return DL_ERR_NOMEM;
    }
    *adamw = made;
    return DL_OK;
}

void dl_adamw_free(struct dl_adamw *adamw)
{
    if (adamw == NULL) return;
    free(adamw->m);
    free(adamw->v);
    free(adamw);
}

double dl_adamw_step(struct dl_adamw *adamw, struct dl_network *network, const dl_real *gradients,
                     double rate, double weight_decay, double clip_norm)
{
    const struct dl_parameter_list *list = &network->parameters;
    double norm = sqrt(network->kernels->square_sum(list->total, gradients));
    if (!isfinite(norm)) return norm;
    adamw->step++;
    struct dl_adamw_step step = {
        .rate = (dl_real)rate,
        .beta1 = (dl_real)0.9,
        .beta2 = (dl_real)0.999,
        .epsilon = (dl_real)1e-8,
        .scale = (dl_real)(clip_norm > 0 && norm > clip_norm ? clip_norm / norm : 1),
        .correction1 = (dl_real)(1 - pow(0.9, (double)adamw->step)),
        .correction2 = (dl_real)(1 - pow(0.999, (double)adamw->step)),
    };
    for (uint32_t i = 0; i < list->count; i++) {
        const struct dl_parameter *item = &list->items[i];
        size_t at = list->offsets[i];
        step.decay = item->decay ? (dl_real)weight_decay : 0;
        network->kernels->adamw((size_t)item->rows * item->columns, &step, gradients + at,
                                adamw->m + at, adamw->v + at, network->values + at);
    }
    dl_network_updated(network);
    return norm;
}

double dl_schedule_cosine(uint64_t step, uint64_t steps, uint64_t warmup, double peak, double floor)
{
    if (step < warmup) return peak * (double)(step + 1) / (double)warmup;
    if (steps <= warmup + 1) return peak;
    double way = (double)(step - warmup) / (double)(steps - warmup - 1);
    if (way > 1) way = 1;
    return peak * (floor + (1 - floor) * 0.5 * (1 + cos(way * 3.14159265358979323846)));
}
