/* AdamW (Loshchilov and Hutter 2019; β 0.9 and 0.999, ε 1e-8) with clipping by
 * the global norm, and the learning-rate schedule. */
#ifndef DL_MODEL_OPTIMIZER_H
#define DL_MODEL_OPTIMIZER_H

#include <stdint.h>

#include "model/network.h"

struct dl_adamw;

/* Moments for the network's parameters, all zero. DL_OK or DL_ERR_NOMEM. */
int dl_adamw_new(const struct dl_network *network, struct dl_adamw **adamw);
void dl_adamw_free(struct dl_adamw *adamw);

/* One step on the network's values, followed by dl_network_updated. `gradients`
 * (parameter_count) is left alone. Where the norm of all gradients exceeds
 * clip_norm (0: never clips) they count as scaled down to it. Decay applies to
 * matrices only. Returns the norm before clipping; a norm that is not finite
 * changes nothing. */
double dl_adamw_step(struct dl_adamw *adamw, struct dl_network *network, const dl_real *gradients,
                     double rate, double weight_decay, double clip_norm);

/* The rate of step 0..steps−1: linear warm-up over `warmup` steps, then a cosine
 * from `peak` down to peak · floor. */
double dl_schedule_cosine(uint64_t step, uint64_t steps, uint64_t warmup, double peak,
                          double floor);

#endif
