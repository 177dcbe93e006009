/* Anything that scores the candidates of a query: a trained network, or a
 * baseline that needs no training. `evaluate` measures all of them alike. */
#ifndef DL_MODEL_SCORER_H
#define DL_MODEL_SCORER_H

#include "base/query.h"
#include "model/model.h"
#include "model/network.h"

struct dl_scorer {
    const char *name;
    const void *self; /* borrowed */
    uint32_t window;  /* interactions of each endpoint that it reads, at least 1 */
    uint32_t layers;  /* layers of attention it can report; 0: none */
    const struct dl_calibration *calibration; /* NULL: its scores are no logits */
    /* One workspace a thread. Both NULL: it needs none. */
    int (*workspace_new)(const void *self, void **workspace);
    void (*workspace_free)(void *workspace);
    /* scores (candidate_count), higher is likelier, each from its own candidate
     * alone; attention as for dl_network_score, asked for only if layers > 0. */
    void (*score)(const void *self, void *workspace, const struct dl_query *query, dl_real *scores,
                  struct dl_attention *attention);
};

/* A network, with its calibration (NULL: none). Both are borrowed. */
struct dl_scorer dl_scorer_network(const struct dl_network *network,
                                   const struct dl_calibration *calibration);

#endif
