/* An index of a recorded feed's distinct directed pairs and when each occurred:
 * answers "was (u, v) an edge between these times?". Built once, then read by
 * any thread. */
#ifndef DL_MODEL_PAIRS_H
#define DL_MODEL_PAIRS_H

#include <stdint.h>

#include "model/dataset.h"

#define DL_PAIR_NONE UINT32_MAX

struct dl_pairs {
    const struct dl_dataset *dataset; /* borrowed */
    uint32_t pair_count;
    uint64_t *first;  /* (pair_count), event of the first occurrence; pairs are in that order */
    uint64_t *offset; /* (pair_count + 1), into `occurrences` */
    uint32_t *occurrences; /* (event_count), event indices by pair, ascending */
    uint32_t *pair_of;     /* (event_count) */
    /* private */
    uint32_t *slots; /* hash table of pair + 1 */
    uint64_t slot_mask;
};

/* DL_OK or DL_ERR_NOMEM. Free also what failed. */
int dl_pairs_init(struct dl_pairs *pairs, const struct dl_dataset *dataset);
void dl_pairs_deinit(struct dl_pairs *pairs);

/* The pair's index, or DL_PAIR_NONE. */
uint32_t dl_pairs_find(const struct dl_pairs *pairs, uint32_t src, uint32_t dst);
/* How often the pair occurred at times in [from, to]; 0 for DL_PAIR_NONE. */
uint32_t dl_pairs_count(const struct dl_pairs *pairs, uint32_t pair, int64_t from, int64_t to);
/* How many pairs occurred first at an event with an index below `event`. */
uint32_t dl_pairs_before(const struct dl_pairs *pairs, uint64_t event);
/* The pair's endpoints. */
uint32_t dl_pairs_src(const struct dl_pairs *pairs, uint32_t pair);
uint32_t dl_pairs_dst(const struct dl_pairs *pairs, uint32_t pair);

#endif
