/* Live quality: how well each event's own edge was told from random ones,
 * before it was taken in. Keeps the last `window` events in a ring and computes
 * average precision, AUC, mean reciprocal rank and calibration error over them
 * when asked. Deterministic; saved in the store, so a restart changes nothing.
 * Belongs to the loop's thread. */
#ifndef DL_SERVICE_QUALITY_H
#define DL_SERVICE_QUALITY_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

struct dl_quality;

/* NaN where there is nothing yet. */
struct dl_quality_figures {
    uint64_t events; /* that the figures rest on */
    double ap, auc;  /* true edges against their published negatives, pooled */
    double mrr;      /* of the true destination among the negatives, ties at mid-rank */
    double ece;      /* expected calibration error, 15 equal bins */
};

int dl_quality_new(uint32_t window, struct dl_quality **quality);
void dl_quality_free(struct dl_quality *quality);

/* One event: the probability of its edge, of the published negative, and twice
 * the mid-rank of the true destination (from 2). */
void dl_quality_observe(struct dl_quality *quality, float probability, float negative,
                        uint32_t rank_times_2);
#define DL_QUALITY_RECENT 1000 /* events of the recent figures */

/* Over the whole ring, or over its newest DL_QUALITY_RECENT. Sorts only if
 * something changed since the last call. */
void dl_quality_figures(struct dl_quality *quality, struct dl_quality_figures *figures);
void dl_quality_figures_recent(struct dl_quality *quality, struct dl_quality_figures *figures);

void dl_quality_save(const struct dl_quality *quality, struct dl_buf *out);
/* Hostile bytes: DL_ERR_CORRUPT; DL_ERR_VERSION for another window. */
int dl_quality_load(struct dl_quality *quality, struct dl_slice bytes);

#endif
