/* Drawing candidates for a node: who it may link to next. In this order,
 * without repetition and without the node itself, up to a maximum:
 *
 *   1. its own window, newest first (repeats)
 *   2. its peers' peers, by recency, peer by peer
 *   3. the destinations that the last events named most often
 *   4. the caller's list (always taken, beyond the maximum if need be)
 *
 * Drawn candidates are nodes that were a destination before. In a bipartite
 * feed the peers' peers are nodes of the node's own side, so one more hop is
 * made. A node that several sources name carries all their origins. */
#ifndef DL_SERVICE_CANDIDATES_H
#define DL_SERVICE_CANDIDATES_H

#include <stdint.h>

#include "base/graph.h"
#include "base/record.h"
#include "base/status.h"

struct dl_candidate_set {
    uint32_t count, capacity;
    uint32_t *nodes;
    uint8_t *origins; /* enum dl_candidate_origin, or-ed */
    /* private: hash of node to index + 1 */
    uint32_t slot_mask;
    uint32_t *slots;
};

/* Zero-initialised is empty; memory is reused between draws. */
void dl_candidate_set_deinit(struct dl_candidate_set *set);

/* Draws up to `max` candidates for `node` into the emptied set. DL_OK, DL_ERR_NOMEM. */
int dl_candidates_draw(const struct dl_graph *graph, uint32_t node, int bipartite, uint32_t max,
                       struct dl_candidate_set *set);
/* Empties it, for a set of the caller's nodes alone. */
int dl_candidates_begin(struct dl_candidate_set *set, uint32_t capacity);
/* Adds one of the caller's. DL_OK, DL_ERR_NOMEM, DL_ERR_TOO_LARGE (DL_CANDIDATES_MAX). */
int dl_candidates_add(struct dl_candidate_set *set, uint32_t node);

#endif
