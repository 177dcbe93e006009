/* What no scorer can exceed on a given set of positives and negatives.
 *
 * Random negatives are often true edges at that very time. Where the model may
 * see only smaller times (strict), a score depends on (u, v, t) alone, so such a
 * negative cannot be told from the positive, not even by an oracle that knows
 * all edges of time t. With n events of u at t, m of them to v, and D
 * destinations, the pair (u, v, t) is the positive with probability m/n and the
 * negative with 1/D: the best pooled order is by m/n, which is 1/out-degree
 * where no edge repeats. Where the order inside t is random and seen (shuffle),
 * m and n count the events that are still to come. Where the order is given
 * (stream), an oracle knows the very next edge. */
#ifndef DL_MODEL_BOUND_H
#define DL_MODEL_BOUND_H

#include <stdint.h>

#include "base/status.h"
#include "model/negatives.h"
#include "model/pairs.h"
#include "model/split.h"

struct dl_bound {
    double ap_pooled; /* mean over draws: no scorer's pooled AP has a higher expectation */
    double edge_oracle_batch_mean; /* batch-mean AP of "is it an edge (still to come)?"; no bound */
};

/* positions: (count) ascending, in `pass`'s order (only its order is used).
 * negatives: (draws, count). DL_OK or DL_ERR_NOMEM. */
int dl_bound_compute(const struct dl_pass *pass, const struct dl_pairs *pairs, enum dl_ties ties,
                     const uint64_t *positions, uint64_t count, const struct dl_edge *negatives,
                     uint32_t draws, struct dl_bound *bound);

#endif
