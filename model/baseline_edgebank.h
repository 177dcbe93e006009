/* Baselines that remember and learn nothing. Every claim for a trained model
 * has to beat them. */
#ifndef DL_MODEL_BASELINE_EDGEBANK_H
#define DL_MODEL_BASELINE_EDGEBANK_H

#include "model/scorer.h"

/* EdgeBank (Poursafaei et al. 2022, unlimited memory): 1 if this directed edge
 * was seen before, else 0. */
extern const struct dl_scorer dl_scorer_edgebank;

/* Pairs seen before, in either direction, above all others and the most recent
 * first; then destinations by how recently they were one. Ages are counted in
 * events of the feed. */
extern const struct dl_scorer dl_scorer_pair_recency;

/* "edgebank" or "pair-recency"; NULL for another name. */
const struct dl_scorer *dl_baseline_find(const char *name);

#endif
