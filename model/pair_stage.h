/* The pair stage of the two-stage models: a small MLP over what is known of a
 * pair and, with an encoder, a vector for each of the two windows:
 *
 *   x = [h_u, h_v, h_u ∘ h_v, own columns of u, of v, their steps (config.steps), since of u, of v]
 *   logit = gelu(gelu(x W0 + b0) W1 + b1) W2 + b2,  widths 2d, d, 1 */
#ifndef DL_MODEL_PAIR_STAGE_H
#define DL_MODEL_PAIR_STAGE_H

#include "model/architecture.h"
#include "model/linear.h"

struct dl_pair_stage {
    size_t encoding; /* length of h; 0: no encoder */
    int has_steps;
    size_t columns; /* of x beside h */
    struct dl_linear linear[3];
};

/* For up to P pairs. */
struct dl_pair_scratch {
    dl_real *x;                     /* (P, in) */
    dl_real *hidden[2], *active[2]; /* (P, 2d), (P, d) each */
    dl_real *dx;                    /* (P, 3 encoding) */
    dl_real *dhidden[2];
};

void dl_pair_stage_add(struct dl_pair_stage *stage, struct dl_parameter_list *list,
                       const struct dl_network_config *config, size_t encoding);
void dl_pair_stage_carve_plan(struct dl_pair_stage *stage, struct dl_carve *carve);
void dl_pair_stage_update(const struct dl_network *network, struct dl_pair_stage *stage);

void dl_pair_stage_carve_forward(const struct dl_pair_stage *stage, struct dl_pair_scratch *scratch,
                                 struct dl_carve *carve, size_t pairs);
void dl_pair_stage_carve_backward(const struct dl_pair_stage *stage,
                                  struct dl_pair_scratch *scratch, struct dl_carve *carve,
                                  size_t pairs);

/* h (sides, encoding), or NULL without an encoder; logits (pairs). */
void dl_pair_stage_forward(const struct dl_network *network, const struct dl_pair_stage *stage,
                           struct dl_pair_scratch *scratch, const struct dl_batch *batch,
                           const struct dl_pass *pass, const dl_real *h, dl_real *logits);
/* From dlogits (pairs); adds to dh (sides, encoding), unless NULL. */
void dl_pair_stage_backward(const struct dl_network *network, const struct dl_pair_stage *stage,
                            struct dl_pair_scratch *scratch, const struct dl_batch *batch,
                            const struct dl_pass *pass, const dl_real *h, const dl_real *dlogits,
                            dl_real *dh, dl_real *gradients);

#endif
