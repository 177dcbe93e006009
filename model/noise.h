/* Irrelevant neighbours for a test of dispersion: a query's windows as they
 * would be had each endpoint also met nodes that mean nothing. */
#ifndef DL_MODEL_NOISE_H
#define DL_MODEL_NOISE_H

#include "base/query.h"

/* Puts `neighbours` interactions with nodes drawn from 0..node_count−1 at random
 * places of each window that has any; what no longer fits falls off the far end.
 * An inserted one takes its time, direction and weight from the one before it,
 * so only its peer is foreign. What is known of nodes and pairs stays. Draws
 * depend on the seed and the side's node alone. DL_OK, DL_ERR_NOMEM. */
int dl_noise_add(struct dl_query *query, uint32_t neighbours, uint32_t node_count, uint64_t seed);

#endif
