/* The cache of window encodings, for models that encode each node's window by
 * itself (dl_network_encoding_width > 0). An encoding is good for as long as the
 * node has the same number of events and the cache was not cleared; it is the
 * same to the last bit as one made anew, so no score depends on what is here.
 *
 * Workers never see the cache: a query that goes to them carries copies of what
 * is known, they fill in the rest, and on its return the new ones are kept.
 *
 * A set-associative table of a fixed size; a full set drops what was used least
 * recently. Thread: the loop's. */
#ifndef DL_SERVICE_ENCODINGS_H
#define DL_SERVICE_ENCODINGS_H

#include <stdint.h>

#include "base/query.h"

#define DL_ENCODINGS_BYTES (64u << 20)

struct dl_encodings;

/* `width` floats each, as many as `bytes` have room for. DL_OK, DL_ERR_NOMEM. */
int dl_encodings_new(uint32_t width, uint64_t bytes, struct dl_encodings **encodings);
void dl_encodings_free(struct dl_encodings *encodings);

/* Forgets all: the model is another, or windows changed otherwise than by events. */
void dl_encodings_clear(struct dl_encodings *encodings);

/* Gives the query's sides room for their encodings and fills in those that are
 * known. After its last candidate. DL_OK, DL_ERR_NOMEM. */
int dl_encodings_fill(struct dl_encodings *encodings, struct dl_query *query);
/* Keeps what the query came back with. Not for one that was filled before the
 * last clear. */
void dl_encodings_keep(struct dl_encodings *encodings, const struct dl_query *query);

struct dl_encodings_figures {
    uint64_t hits, misses; /* of fill; nodes without a window count as neither */
};
struct dl_encodings_figures dl_encodings_get_figures(const struct dl_encodings *encodings);

#endif
